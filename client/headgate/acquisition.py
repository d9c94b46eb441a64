"""Leases as users hold them, and acquires that have not happened yet: to enter or decorate with."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from headgate.bucket import LimitStatus
from headgate.core import Core
from headgate.costs import Consume
from headgate.errors import ValidationError
from headgate.headers import rate_limit_headers
from headgate.lease import Hold, Request, Wanted, admit
from headgate.methods import aio, sync
from headgate.ticket import Ticket

if TYPE_CHECKING:
    from headgate.drivers.aio import AioDriver
    from headgate.drivers.boto import BotoDriver

P = ParamSpec("P")
R = TypeVar("R")
Who = str | Callable[..., str]
What = Consume | Callable[..., Consume]


class _Lease:
    """What both kinds of lease show."""

    def __init__(self, hold: Hold) -> None:
        self._hold = hold

    @property
    def consumed(self) -> dict[str, int]:
        """Tokens held now, by limit."""
        return self._hold.consumed()

    @property
    def limits(self) -> tuple[LimitStatus, ...]:
        """Where each limit stands after this lease's last write. Empty if degraded."""
        return self._hold.limits()

    def limits_of(self, entity_id: str, resource: str) -> tuple[LimitStatus, ...]:
        """Where each limit of this bucket stands: of any request of the acquire, or of a parent
        that it cascaded to. Empty if degraded, or if nothing was drawn from it.
        """
        return self._hold.limits_of(entity_id, resource)

    @property
    def degraded(self) -> bool:
        """Whether the table was unreachable and the policy let this pass unmetered."""
        return self._hold.reason is not None

    @property
    def degraded_reason(self) -> str | None:
        """Why it is degraded."""
        return self._hold.reason

    def ticket(self, *, expires_in: float = 3600.0) -> Ticket:
        """What this lease holds, as data that any process can settle once, for `expires_in` seconds
        (from 1 second to 7 days): `limiter.adjust(ticket, ...)`, `limiter.release(ticket)`. From
        then on correct the ticket or the lease, never both: they know nothing of each other.
        """
        return self._hold.ticket(expires_in)

    def headers(self) -> dict[str, str]:
        """The HTTP headers of a successful answer."""
        return rate_limit_headers(self.limits)


class SyncLease(_Lease):
    """Tokens taken by a `SyncRateLimiter`."""

    def __init__(self, hold: Hold, driver: BotoDriver) -> None:
        super().__init__(hold)
        self._driver = driver

    def _subject(self) -> Hold:
        return self._hold

    consume = sync(Hold.consume)
    adjust = sync(Hold.adjust)
    release = sync(Hold.release)


class Lease(_Lease):
    """Tokens taken by a `RateLimiter`."""

    def __init__(self, hold: Hold, driver: AioDriver) -> None:
        super().__init__(hold)
        self._driver = driver

    def _subject(self) -> Hold:
        return self._hold

    consume = aio(Hold.consume)
    adjust = aio(Hold.adjust)
    release = aio(Hold.release)


class _Acquisition:
    """An acquire that has not happened yet: enter it, or decorate a function with it."""

    def __init__(self, core: Core, driver: Any, wanted: Wanted, who: Who, what: What) -> None:
        self._core = core
        self._driver = driver
        self._wanted = wanted
        self._who = who
        self._what = what
        self._held: list[Hold] = []  # entered and not left: blocks may nest

    def _bound(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Wanted:
        """The acquire for one call of a decorated function."""
        if not callable(self._who) and not callable(self._what):
            return self._wanted
        first = self._wanted.requests[0]
        entity_id = self._who(*args, **kwargs) if callable(self._who) else self._who
        consume = self._what(*args, **kwargs) if callable(self._what) else self._what
        bound = Request(entity_id, first.resource, consume, first.limits)
        return Wanted(
            (bound, *self._wanted.requests[1:]), self._wanted.max_wait, self._wanted.on_unavailable
        )

    def _plain(self) -> Wanted:
        if callable(self._who) or callable(self._what):
            raise ValidationError(
                "entity_id or consume is a function: that is for decorating, where it is given "
                "the call's arguments"
            )
        return self._wanted


class SyncAcquisition(_Acquisition):
    """See `SyncRateLimiter.acquire`."""

    def __enter__(self) -> SyncLease:
        hold = self._driver.run(admit(self._core, self._plain()))
        self._held.append(hold)
        return SyncLease(hold, self._driver)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        hold = self._held.pop()
        if error is not None:
            self._driver.run(hold.rollback())

    def __call__(self, function: Callable[P, R]) -> Callable[P, R]:
        if inspect.iscoroutinefunction(function):
            raise ValidationError(
                f"SyncRateLimiter decorates functions that block, and {function!r} would run after "
                "the lease was left: use RateLimiter for it"
            )

        @functools.wraps(function)
        def limited(*args: P.args, **kwargs: P.kwargs) -> R:
            wanted = self._bound(args, kwargs)
            first = wanted.requests[0]
            with SyncAcquisition(self._core, self._driver, wanted, first.entity_id, first.consume):
                return function(*args, **kwargs)

        return limited


class Acquisition(_Acquisition):
    """See `RateLimiter.acquire`."""

    async def __aenter__(self) -> Lease:
        hold = await self._driver.run(admit(self._core, self._plain()), undo=Hold.rollback)
        self._held.append(hold)
        return Lease(hold, self._driver)

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        hold = self._held.pop()
        if error is not None:
            await self._driver.run(hold.rollback())

    def __call__(self, function: Callable[P, Awaitable[R]]) -> Callable[P, Awaitable[R]]:
        if not inspect.iscoroutinefunction(function):
            raise ValidationError(
                f"RateLimiter decorates coroutine functions, and {function!r} is none: "
                "use SyncRateLimiter for it"
            )

        @functools.wraps(function)
        async def limited(*args: P.args, **kwargs: P.kwargs) -> R:
            wanted = self._bound(args, kwargs)
            first = wanted.requests[0]
            async with Acquisition(
                self._core, self._driver, wanted, first.entity_id, first.consume
            ):
                return await function(*args, **kwargs)

        return limited
