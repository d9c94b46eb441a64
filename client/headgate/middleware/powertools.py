"""For the event handler of Powertools for AWS Lambda: REST, HTTP, ALB and function URL.

app = APIGatewayHttpResolver()
app.use([RateLimit(SyncRateLimiter.from_env(), Policy(...))])
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from headgate.middleware.entry import Entry
from headgate.middleware.http import Outgoing, from_event
from headgate.middleware.policy import Policy, Refusal

if TYPE_CHECKING:
    from collections.abc import Callable

    from aws_lambda_powertools.event_handler import Response

    from headgate.limiter import SyncRateLimiter


class RateLimit:
    """A middleware for `app.use([...])` or for the `middlewares` of one route."""

    # The event handler shows the names of its middlewares when it is debugged.
    __name__ = "RateLimit"

    def __init__(self, limiter: SyncRateLimiter, policy: Policy) -> None:
        self._entry = Entry(limiter, policy)

    def __call__(self, app: Any, next_middleware: Callable[[Any], Response[Any]]) -> Response[Any]:
        """The event handler's interface."""
        from aws_lambda_powertools.event_handler import Response  # noqa: PLC0415
        from aws_lambda_powertools.event_handler.exceptions import ServiceError  # noqa: PLC0415

        incoming = from_event(app.current_event.raw_event)
        answered: ServiceError | None = None
        with ExitStack() as stack:
            lease = self._entry.enter(stack, incoming)
            if isinstance(lease, Refusal):
                return Response(lease.status, "application/json", lease.text(), dict(lease.headers))
            if lease is None:
                return next_middleware(app)
            try:
                response = next_middleware(app)
            except ServiceError as error:
                # Raised, but an answer: a caller that is told "bad request" has made one.
                if error.status_code >= 500:
                    raise
                answered = error
            else:
                headers = _single(response.headers)
                outgoing = Outgoing(response.status_code, headers, response.body)
                self._entry.correct(lease, incoming, outgoing)
                response.headers.update(self._entry.policy.headers(lease))
                return response
        raise answered


def _single(headers: dict[str, str | list[str]]) -> dict[str, str]:
    return {
        name.lower(): value if isinstance(value, str) else ", ".join(value)
        for name, value in headers.items()
    }
