"""Flows over sockets of our own: boto3's configuration without most of its cost."""

from __future__ import annotations

import os
import select
import socket
import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

from headgate.clock import Clock
from headgate.drivers import plain
from headgate.drivers.boto import BotoDriver
from headgate.drivers.outcomes import from_exception
from headgate.drivers.wire import Endpoint, Inbox, Reply, answered, resolving
from headgate.effects import Call, Outcome, Refused
from headgate.errors import ClockSkewed

_IDLE_CONNECTIONS = 128
# DynamoDB closes what was silent for longer.
_IDLE_SECONDS = 50.0
_ENOUGH = 65_536


class _Connection:
    """One socket, used by one thread at a time."""

    def __init__(self, endpoint: Endpoint) -> None:
        address, timeout = (endpoint.host, endpoint.port), endpoint.connect_timeout
        sock = socket.create_connection(address, timeout)
        try:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            if endpoint.tls is not None:
                sock = endpoint.tls.wrap_socket(sock, server_hostname=endpoint.host)
            sock.settimeout(endpoint.read_timeout)
        except BaseException:
            sock.close()
            raise
        self._sock = sock
        self._inbox = Inbox()
        self.used = 0.0

    def usable(self, now: float) -> bool:
        """Whether it may be used again: a word from a silent server can only be a farewell."""
        return now - self.used < _IDLE_SECONDS and not _readable(self._sock)

    def exchange(self, request: bytes) -> Reply:
        self._sock.sendall(request)
        while True:
            reply = self._inbox.feed(self._sock.recv(_ENOUGH))
            if reply is not None:
                return reply

    def close(self) -> None:
        self._sock.close()


def _readable(sock: socket.socket) -> bool:
    if not hasattr(select, "poll"):
        return bool(select.select([sock], [], [], 0)[0])
    poll = select.poll()
    poll.register(sock, select.POLLIN)
    return bool(poll.poll(0))


class FastDriver(BotoDriver):
    """Runs flows as BotoDriver does, with its client as the authority on endpoint, credentials
    and certificates. What that client has to send by itself, it sends.

    With the `settings` that such a client would be made with, and nothing else to ask it for, an
    environment that says it all saves making one.
    """

    def __init__(
        self,
        connect: Callable[..., Any],
        table: str,
        clock: Clock,
        *,
        settings: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(connect, table, clock)
        self._settings = settings
        self._endpoint: Endpoint | None = None
        self._resolved = False
        self._idle: deque[_Connection] = deque(maxlen=_IDLE_CONNECTIONS)

    def close(self) -> None:
        """Lets go of threads and connections."""
        super().close()
        self._endpoint, self._resolved = None, False
        while self._idle:
            self._idle.pop().close()

    def _send(self, call: Call) -> Outcome:
        try:
            if not self._resolved:
                self._resolve()
            endpoint = self._endpoint
            if endpoint is None:
                return super()._send(call)
            before = self._clock.offset
            outcome = self._exchange(endpoint, call)
            skewed = isinstance(outcome, Refused) and isinstance(outcome.error, ClockSkewed)
            # The refusal told the time, and nothing was done: once more, by the server's clock.
            if skewed and self._clock.offset != before:
                outcome = self._exchange(endpoint, call)
        except Exception as error:  # noqa: BLE001 - classified, never swallowed
            return from_exception(error, self._table)
        return outcome

    def _exchange(self, endpoint: Endpoint, call: Call) -> Outcome:
        credentials = endpoint.credentials.get_frozen_credentials()
        request = endpoint.request(call, credentials, self._clock.now())
        sent, reply = self._clock.raw(), None
        if endpoint.listeners is not None:
            said = endpoint.listeners.emit(**endpoint.announced(call, request))
            reply = answered([answer for _, answer in said])
        if reply is None:
            reply = self._over_socket(endpoint, request)
        self._clock.observe(reply.headers.get("date"), sent, self._clock.raw())
        return reply.outcome(self._table)

    def _over_socket(self, endpoint: Endpoint, request: bytes) -> Reply:
        connection = self._connection(endpoint)
        try:
            reply = connection.exchange(request)
        except BaseException:
            # An interrupt as well: an answer that is still to come must not meet a new request.
            connection.close()
            raise
        if reply.keep and len(self._idle) < _IDLE_CONNECTIONS:
            connection.used = time.monotonic()
            self._idle.append(connection)
        else:
            connection.close()
        return reply

    def _connection(self, endpoint: Endpoint) -> _Connection:
        now = time.monotonic()
        while True:
            try:
                connection = self._idle.pop()
            except IndexError:
                return _Connection(endpoint)
            if connection.usable(now):
                return connection
            connection.close()

    def _resolve(self) -> None:
        with self._lock:
            if self._resolved:
                return
            if self._settings is not None:
                self._endpoint = plain.endpoint(self._settings, os.environ)
            if self._endpoint is not None:
                self._resolved = True
                return
            if self._client is None:
                self._client = self._connect()
            steps = resolving(self._client, self._table)
            try:
                next(steps)
                steps.close()
            except StopIteration as stop:
                self._endpoint = stop.value
            self._resolved = True
