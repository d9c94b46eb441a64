"""A policy carried out: what all adapters do around a request, blocking and not."""

from __future__ import annotations

from contextlib import AsyncExitStack, ExitStack
from typing import TYPE_CHECKING

from headgate.core import logger
from headgate.errors import HeadgateError, ValidationError
from headgate.limiter import RateLimiter, SyncRateLimiter
from headgate.middleware.policy import Named, Policy, Refusal, refusal

if TYPE_CHECKING:
    from headgate.acquisition import Acquisition, Lease, SyncAcquisition, SyncLease
    from headgate.middleware.http import Incoming, Outgoing

_UNKNOWN = "what the request used is not known: the estimate stays"


class Entry:
    """For adapters that block."""

    def __init__(self, limiter: SyncRateLimiter, policy: Policy) -> None:
        _check(limiter, SyncRateLimiter)
        self._limiter = limiter
        self.policy = policy

    def enter(self, stack: ExitStack, incoming: Incoming) -> SyncLease | Refusal | None:
        """A lease for as long as the stack is open. None: the request is not limited."""
        requests: Named = []
        try:
            requests = self.policy.requests(incoming)
            return stack.enter_context(self._acquisition(requests)) if requests else None
        except HeadgateError as error:
            return refusal(error, requests)

    def correct(self, lease: SyncLease, incoming: Incoming, outgoing: Outgoing) -> None:
        """Adjusts to what was used. The answer is made: what fails here must not spoil it."""
        try:
            if more := self.policy.correction(incoming, outgoing, lease):
                lease.adjust(**more)
        except Exception:  # noqa: BLE001 - logged, whatever it is
            logger.exception(_UNKNOWN)

    def _acquisition(self, requests: Named) -> SyncAcquisition:
        return self._limiter.acquire_all(
            [request for _, request in requests],
            max_wait=self.policy.max_wait,
            on_unavailable=self.policy.on_unavailable,
        )


class AsyncEntry:
    """The same on an event loop."""

    def __init__(self, limiter: RateLimiter, policy: Policy) -> None:
        _check(limiter, RateLimiter)
        self._limiter = limiter
        self.policy = policy

    async def enter(self, stack: AsyncExitStack, incoming: Incoming) -> Lease | Refusal | None:
        """As `Entry.enter`."""
        requests: Named = []
        try:
            requests = self.policy.requests(incoming)
            if not requests:
                return None
            return await stack.enter_async_context(self._acquisition(requests))
        except HeadgateError as error:
            return refusal(error, requests)

    async def correct(self, lease: Lease, incoming: Incoming, outgoing: Outgoing) -> None:
        """As `Entry.correct`."""
        try:
            if more := self.policy.correction(incoming, outgoing, lease):
                await lease.adjust(**more)
        except Exception:  # noqa: BLE001 - logged, whatever it is
            logger.exception(_UNKNOWN)

    def _acquisition(self, requests: Named) -> Acquisition:
        return self._limiter.acquire_all(
            [request for _, request in requests],
            max_wait=self.policy.max_wait,
            on_unavailable=self.policy.on_unavailable,
        )


def _check(limiter: object, kind: type[object]) -> None:
    if not isinstance(limiter, kind):
        raise ValidationError(f"this takes a {kind.__name__}: {type(limiter).__name__} given")
