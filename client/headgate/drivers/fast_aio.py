"""Flows on an event loop, over connections of our own: aiobotocore's configuration without most
of its cost.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from typing import Any

from headgate.clock import Clock
from headgate.drivers.aio import AioDriver
from headgate.drivers.outcomes import from_exception
from headgate.drivers.wire import Endpoint, Inbox, Reply, resolving
from headgate.effects import Call, Outcome, Refused
from headgate.errors import ClockSkewed

# Well under the 1,024 files that a process may usually open; the rest waits its turn.
_CONNECTIONS = 256
_IDLE_SECONDS = 50.0


class _Connection(asyncio.Protocol):
    """One request at a time."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._transport: asyncio.Transport | None = None
        self._inbox = Inbox()
        self._waiting: asyncio.Future[Reply] | None = None
        self._deadline = 0.0
        self._alarm: asyncio.TimerHandle | None = None
        self.used = 0.0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        sock = transport.get_extra_info("socket")
        if sock is not None:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)

    def data_received(self, data: bytes) -> None:
        self._feed(data)

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        if exc is not None:
            self._fail(exc)
        else:
            self._feed(b"")

    def usable(self, now: float) -> bool:
        return self._transport is not None and now - self.used < _IDLE_SECONDS

    async def exchange(self, request: bytes, timeout: float) -> Reply:  # noqa: ASYNC109
        if self._transport is None:
            raise ConnectionResetError("the connection was closed")
        self._waiting = self._loop.create_future()
        self._deadline = self._loop.time() + timeout
        if self._alarm is None:
            self._alarm = self._loop.call_at(self._deadline, self._look)
        try:
            self._transport.write(request)
            return await self._waiting
        finally:
            self._waiting = None

    def close(self) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None
        if self._transport is not None:
            self._transport.abort()

    def _feed(self, data: bytes) -> None:
        if self._waiting is None:
            # A word that nobody asked for: whatever it is, nothing here can be trusted any more.
            self.close()
            return
        try:
            reply = self._inbox.feed(data)
        except (OSError, ValueError) as error:
            self._fail(error)
            return
        if reply is not None and not self._waiting.done():
            self._waiting.set_result(reply)

    def _fail(self, error: Exception) -> None:
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_exception(error)

    def _look(self) -> None:
        """One timer serves one request after the other: setting one for each costs a tenth of
        all that sending it does. It may find that its request was answered, and look again.
        """
        self._alarm = None
        if self._waiting is None:
            return
        if self._loop.time() < self._deadline:
            self._alarm = self._loop.call_at(self._deadline, self._look)
        else:
            self._fail(TimeoutError("no answer in time"))


class FastAioDriver(AioDriver):
    """Runs flows as AioDriver does, with its client as the authority on endpoint, credentials
    and certificates. What that client has to send by itself, it sends.
    """

    def __init__(self, connect: Callable[[], Any], table: str, clock: Clock) -> None:
        super().__init__(connect, table, clock)
        self._resolved_for: Any = None
        self._endpoint: Endpoint | None = None
        self._idle: list[_Connection] = []
        self._room = asyncio.Semaphore(_CONNECTIONS)

    async def close(self) -> None:
        """Lets go of the connections."""
        self._drop()
        await super().close()

    async def _send(self, client: Any, call: Call) -> Outcome:
        try:
            if self._resolved_for is not client:
                assert self._opening is not None
                async with self._opening:
                    if self._resolved_for is not client:
                        await self._resolve(client)
            endpoint = self._endpoint
            if endpoint is None:
                return await super()._send(client, call)
            before = self._clock.offset
            outcome = await self._exchange(endpoint, call)
            skewed = isinstance(outcome, Refused) and isinstance(outcome.error, ClockSkewed)
            # The refusal told the time, and nothing was done: once more, by the server's clock.
            if skewed and self._clock.offset != before:
                outcome = await self._exchange(endpoint, call)
        except Exception as error:  # noqa: BLE001 - classified, never swallowed
            return from_exception(error, self._table)
        return outcome

    async def _exchange(self, endpoint: Endpoint, call: Call) -> Outcome:
        credentials = await endpoint.credentials.get_frozen_credentials()
        async with self._room:
            connection = await self._connection(endpoint)
            request = endpoint.request(call, credentials, self._clock.now())
            sent, keep = self._clock.raw(), False
            try:
                reply = await connection.exchange(request, endpoint.read_timeout)
                keep = reply.keep
            finally:
                if keep:
                    connection.used = asyncio.get_running_loop().time()
                    self._idle.append(connection)
                else:
                    connection.close()
        self._clock.observe(reply.headers.get("date"), sent, self._clock.raw())
        return reply.outcome(self._table)

    async def _connection(self, endpoint: Endpoint) -> _Connection:
        loop = asyncio.get_running_loop()
        now = loop.time()
        while self._idle:
            connection = self._idle.pop()
            if connection.usable(now):
                return connection
            connection.close()
        opening = loop.create_connection(
            lambda: _Connection(loop),
            endpoint.host,
            endpoint.port,
            ssl=endpoint.tls,
            server_hostname=endpoint.host if endpoint.tls else None,
        )
        _, made = await asyncio.wait_for(opening, endpoint.connect_timeout)
        return made

    async def _resolve(self, client: Any) -> None:
        steps = resolving(client, self._table)
        endpoint: Endpoint | None = None
        try:
            pending = next(steps)
            try:
                await pending
            except Exception as error:  # noqa: BLE001 - the resolver knows which are its own
                steps.throw(error)
            else:
                steps.close()
        except StopIteration as stop:
            endpoint = stop.value
        # Connections of another client belong to another event loop.
        self._idle.clear()
        self._room = asyncio.Semaphore(_CONNECTIONS)
        self._endpoint, self._resolved_for = endpoint, client

    def _drop(self) -> None:
        self._resolved_for = self._endpoint = None
        idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()
