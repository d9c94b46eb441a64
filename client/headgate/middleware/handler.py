"""For plain Lambda handlers.

@limited(SyncRateLimiter.from_env(), Policy(...))
def handler(event, context): ...

An event of a REST or HTTP API, a load balancer or a function URL is answered with 429. Any other
event has no one to answer: what the limiter raises is raised.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, TypeAlias

from headgate.middleware.entry import Entry
from headgate.middleware.http import Outgoing, event_body, event_headers, from_event, is_http
from headgate.middleware.policy import Policy, Refusal

if TYPE_CHECKING:
    from headgate.limiter import SyncRateLimiter

Handler: TypeAlias = Callable[[Any, Any], Any]


def limited(limiter: SyncRateLimiter, policy: Policy) -> Callable[[Handler], Handler]:
    """A decorator: each invocation acquires first."""
    entry = Entry(limiter, policy)

    def decorate(function: Handler) -> Handler:
        @functools.wraps(function)
        def handler(event: Any, context: Any) -> Any:
            incoming = from_event(event)
            with ExitStack() as stack:
                lease = entry.enter(stack, incoming)
                if isinstance(lease, Refusal):
                    return _refused(event, lease)
                answer = function(event, context)
                if lease is not None:
                    if is_http(event):
                        answer = _complete(answer)
                    entry.correct(lease, incoming, _outgoing(answer))
                    if is_http(event):
                        _put(event, answer, entry.policy.headers(lease))
                return answer

        return handler

    return decorate


def _refused(event: Any, refused: Refusal) -> dict[str, Any]:
    if not is_http(event):
        raise refused.error
    answer = {"statusCode": refused.status, "body": refused.text()}
    _put(event, answer, {"Content-Type": "application/json", **refused.headers})
    return answer


def _complete(answer: Any) -> dict[str, Any]:
    """The answer with all that HTTP APIs and URLs make up for one without a status."""
    if isinstance(answer, Mapping) and "statusCode" in answer:
        return dict(answer)
    body = answer if isinstance(answer, str) else json.dumps(answer)
    return {"statusCode": 200, "headers": {"Content-Type": "application/json"}, "body": body}


def _outgoing(answer: Any) -> Outgoing:
    if isinstance(answer, Mapping) and "statusCode" in answer:
        return Outgoing(int(answer["statusCode"]), event_headers(answer), event_body(answer))
    return Outgoing(200, {}, answer)


def _put(event: Mapping[str, Any], answer: dict[str, Any], headers: Mapping[str, str]) -> None:
    """Adds headers in the form that the event's source reads: a load balancer that sends lists
    ignores all else.
    """
    if "multiValueHeaders" in event and "headers" not in event:
        single = answer.pop("headers", None) or {}
        several = {**(answer.get("multiValueHeaders") or {}), **{n: [v] for n, v in single.items()}}
        answer["multiValueHeaders"] = several | {name: [value] for name, value in headers.items()}
    else:
        answer["headers"] = {**(answer.get("headers") or {}), **headers}
