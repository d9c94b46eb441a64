"""One request and its answer: who calls, what that costs, whether it passes."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

from authorizer.answers import Answer, answer, context, unauthorized
from authorizer.jwks import Fetch, KeysUnavailable, fetch
from authorizer.settings import Settings, Unauthorized
from authorizer.tokens import NotVerified, Tokens
from headgate import SyncRateLimiter
from headgate.errors import HeadgateError, TableError
from headgate.middleware import Incoming, Refusal
from headgate.middleware.entry import Entry
from headgate.middleware.http import from_event


class Undecided(Exception):
    """No answer can be given: API Gateway makes 503 of it for a REST API, 500 for an HTTP API.
    The message is what logs show, so it names no caller.
    """


class Gate:
    """The authorizer, apart from Lambda."""

    def __init__(
        self,
        limiter: SyncRateLimiter,
        settings: Settings,
        *,
        fetch: Fetch = fetch,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._entry = Entry(limiter, settings.policy)
        self._tokens = (
            None if settings.token is None else Tokens(settings.token, fetch=fetch, clock=clock)
        )

    def answer(self, event: Mapping[str, Any]) -> Answer:
        """The answer to one request, whose tokens are drawn if it passes."""
        try:
            incoming = self._identified(from_event(event))
            with ExitStack() as stack:
                lease = self._entry.enter(stack, incoming)
        except Unauthorized:
            return unauthorized(event)
        except HeadgateError as error:
            # The messages of the others may quote what the caller sent.
            why = f": {error}" if isinstance(error, TableError) else ""
            raise Undecided(f"{type(error).__name__}{why}") from None
        if isinstance(lease, Refusal):
            return self._refused(event, lease)
        told = {} if lease is None else context(self._entry.policy.headers(lease))
        return answer(event, allow=True, told={**self._passed_on(incoming), **told})

    def _refused(self, event: Mapping[str, Any], refusal: Refusal) -> Answer:
        if refusal.status != 429:
            raise Undecided(str(refusal.body["error"])) from None
        told = context(refusal.headers, error=str(refusal.body["error"]))
        return answer(event, allow=False, told=told)

    def _identified(self, incoming: Incoming) -> Incoming:
        """The request with the claims of its token: none, unless they are verified."""
        if self._tokens is None:
            return replace(incoming, claims={})
        required = self._tokens.settings.required
        try:
            claims = self._tokens.claims(incoming.headers)
        except NotVerified:
            if required:
                raise Unauthorized from None
            claims = {}
        except KeysUnavailable:
            if required:
                raise Undecided("the issuer's keys are not known") from None
            claims = {}
        return replace(incoming, claims=claims)

    def _passed_on(self, incoming: Incoming) -> dict[str, str]:
        """Claims for the backend: who verified the token before was replaced by this."""
        names = () if self._tokens is None else self._tokens.settings.pass_on
        found = {name: incoming.claims[name] for name in names if name in incoming.claims}
        return {
            name: value if isinstance(value, str) else json.dumps(value)
            for name, value in found.items()
        }
