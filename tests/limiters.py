"""Both limiters behind one interface that blocks, so that a behaviour is tested once.

An adapter has the limiter's own methods, a lease's too, and besides:

    with limiter.sending() as sent: ...   the operations that the block sent
    limiter.calls                         every call it ever sent, parameters included
    limiter.cut() / limiter.mend()        no request arrives / they do again
    limiter.decorated(function, ...)      a function limited by acquire(...)
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import time
from contextlib import contextmanager
from datetime import UTC, datetime
from email.utils import format_datetime
from typing import TYPE_CHECKING, Any

import boto3
from aiobotocore.session import get_session

import engine
from headgate import RateLimiter, SyncRateLimiter
from headgate.bucket import BASELINE, Milliseconds
from headgate.clock import Clock
from headgate.effects import Call, Outcome, Unreachable
from headgate.schema import table_definition

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

START = Milliseconds(BASELINE + 500 * 86_400_000)


class Time:
    """The time of a test. It stands still but for `advance`, until it is made to flow."""

    def __init__(self, start: int = START) -> None:
        self._at = start
        self._flowing_since: int | None = None

    def __call__(self) -> Milliseconds:
        flowed = 0
        if self._flowing_since is not None:
            flowed = (time.monotonic_ns() - self._flowing_since) // 1_000_000
        return Milliseconds(self._at + flowed)

    def advance(self, seconds: float) -> None:
        self._at += round(seconds * 1000)

    def flow(self) -> None:
        """From now on time passes as it does, so that a pause ends."""
        self._flowing_since = time.monotonic_ns()


class AgreedClock(Clock):
    """A clock in a world whose servers have the test's time, and say so."""

    def observe(self, date: str | None, sent: Milliseconds, received: Milliseconds) -> None:
        moment = datetime.fromtimestamp(self.raw() // 1000, UTC)
        super().observe(format_datetime(moment, usegmt=True), sent, received)


@functools.cache
def boto_session() -> boto3.Session:
    """One for all tests: a session reads the service's model once."""
    return boto3.Session()


@functools.cache
def aio_session() -> Any:
    return get_session()


def create_table(name: str, endpoint_url: str | None = None) -> None:
    client = boto_session().client("dynamodb", endpoint_url=endpoint_url, region_name=engine.REGION)
    client.create_table(**table_definition(name))
    client.close()


class _Adapter:
    """What is counted, and the cable that can be cut."""

    def __init__(self, limiter: Any) -> None:
        self.limiter = limiter
        self.calls: list[Call] = []
        self._connected = True

    def cut(self) -> None:
        self._connected = False

    def mend(self) -> None:
        self._connected = True

    @contextmanager
    def sending(self) -> Iterator[list[str]]:
        sent: list[str] = []
        before = len(self.calls)
        try:
            yield sent
        finally:
            sent += [call.operation for call in self.calls[before:]]

    def _lost(self, call: Call) -> Outcome | None:
        self.calls.append(call)
        return None if self._connected else Unreachable("the cable is cut")


class Sync(_Adapter):
    """A SyncRateLimiter. `wire`, if set, stands between the driver and the table."""

    kind = SyncRateLimiter

    def __init__(self, limiter: SyncRateLimiter) -> None:
        super().__init__(limiter)
        self.wire: Callable[[Call, Callable[[Call], Outcome]], Outcome] | None = None
        driver = limiter._driver
        send = driver._send

        def counted(call: Call) -> Outcome:
            lost = self._lost(call)
            if lost is not None:
                return lost
            return send(call) if self.wire is None else self.wire(call, send)

        driver._send = counted

    @classmethod
    def made(cls, *args: Any, **options: Any) -> Sync:
        if "client" not in options:
            options.setdefault("session", boto_session())
        return cls(SyncRateLimiter(*args, **options))

    def __getattr__(self, name: str) -> Any:
        return getattr(self.limiter, name)

    def decorated(self, function: Callable[..., Any], *args: Any, **options: Any) -> Any:
        return self.limiter.acquire(*args, **options)(function)

    def close(self) -> None:
        self.limiter.close()


class Async(_Adapter):
    """A RateLimiter on an event loop of its own, which runs while a method is called."""

    kind = RateLimiter

    def __init__(self, limiter: RateLimiter) -> None:
        super().__init__(limiter)
        self._loop = asyncio.new_event_loop()
        driver = limiter._driver
        send = driver._send

        async def counted(client: Any, call: Call) -> Outcome:
            lost = self._lost(call)
            return await send(client, call) if lost is None else lost

        driver._send = counted

    @classmethod
    def made(cls, *args: Any, **options: Any) -> Async:
        if "client" not in options:
            options.setdefault("session", aio_session())
        return cls(RateLimiter(*args, **options))

    def run(self, awaitable: Any) -> Any:
        async def awaited() -> Any:
            return await awaitable

        return self._loop.run_until_complete(awaited())

    def __getattr__(self, name: str) -> Any:
        return self._blocking(getattr(self.limiter, name))

    def acquire(self, *args: Any, **options: Any) -> _Entered:
        return _Entered(self, self.limiter.acquire(*args, **options))

    def acquire_all(self, *args: Any, **options: Any) -> _Entered:
        return _Entered(self, self.limiter.acquire_all(*args, **options))

    def acquire_each(self, *args: Any, **options: Any) -> list[Any]:
        results = self.run(self.limiter.acquire_each(*args, **options))
        return [r if isinstance(r, Exception) else _BlockingLease(self, r) for r in results]

    def decorated(self, function: Callable[..., Any], *args: Any, **options: Any) -> Any:
        @functools.wraps(function)
        async def coroutine(*inner: Any, **named: Any) -> Any:
            return function(*inner, **named)

        return self._blocking(self.limiter.acquire(*args, **options)(coroutine))

    def close(self) -> None:
        self.run(self.limiter.close())
        self._loop.close()

    def _blocking(self, attribute: Any) -> Any:
        if not callable(attribute):
            return attribute

        @functools.wraps(attribute)
        def blocking(*args: Any, **options: Any) -> Any:
            result = attribute(*args, **options)
            return self.run(result) if inspect.isawaitable(result) else result

        return blocking


class _Entered:
    """An async acquisition as a context manager that blocks."""

    def __init__(self, adapter: Async, acquisition: Any) -> None:
        self._adapter = adapter
        self._acquisition = acquisition

    def __enter__(self) -> _BlockingLease:
        lease = self._adapter.run(self._acquisition.__aenter__())
        return _BlockingLease(self._adapter, lease)

    def __exit__(self, *error: Any) -> None:
        self._adapter.run(self._acquisition.__aexit__(*error))


class _BlockingLease:
    def __init__(self, adapter: Async, lease: Any) -> None:
        self._adapter = adapter
        self._lease = lease

    def __getattr__(self, name: str) -> Any:
        return self._adapter._blocking(getattr(self._lease, name))
