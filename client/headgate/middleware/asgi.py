"""For ASGI applications: FastAPI, Starlette and whatever speaks the protocol.

app.add_middleware(RateLimitMiddleware, limiter=RateLimiter.from_env(), policy=Policy(...))
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, MutableMapping
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any, TypeAlias

from headgate.middleware.entry import AsyncEntry
from headgate.middleware.http import Incoming, Outgoing
from headgate.middleware.policy import Policy, Refusal

if TYPE_CHECKING:
    from headgate.acquisition import Lease
    from headgate.limiter import RateLimiter

Message: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Message]]
Send: TypeAlias = Callable[[Message], Awaitable[None]]
App: TypeAlias = Callable[[Message, Receive, Send], Awaitable[None]]
Raw: TypeAlias = list[tuple[bytes, bytes]]

# Usage is in a JSON answer, which is short, or at the end of a stream of events.
KEPT_BYTES = 1 << 20


class RateLimitMiddleware:
    """Acquires before the application runs. Streams pass as they come: nothing is held back.

    Limits HTTP requests; websockets and the lifespan pass.
    """

    def __init__(self, app: App, limiter: RateLimiter, policy: Policy) -> None:
        self._app = app
        self._entry = AsyncEntry(limiter, policy)

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """The ASGI interface."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        incoming = _incoming(scope)
        async with AsyncExitStack() as stack:
            lease = await self._entry.enter(stack, incoming)
            if isinstance(lease, Refusal):
                await _refuse(send, lease)
            elif lease is None:
                await self._app(scope, receive, send)
            else:
                seen = _Seen(send, lease, self._entry.policy)
                await self._app(scope, receive, seen.send)
                await self._entry.correct(lease, incoming, seen.outgoing())


class _Seen:
    """Puts headers on the answer that passes through, and keeps what `used` wants to see."""

    def __init__(self, send: Send, lease: Lease, policy: Policy) -> None:
        self._send = send
        self._lease = lease
        self._policy = policy
        self._status = 500
        self._headers: Raw = []
        self._body = bytearray()

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self._status = message["status"]
            self._headers = [
                *message.get("headers", ()),
                *_encoded(self._policy.headers(self._lease)),
            ]
            message = {**message, "headers": self._headers}
        elif message["type"] == "http.response.body" and self._policy.used is not None:
            self._body += message.get("body", b"")
            del self._body[:-KEPT_BYTES]
        await self._send(message)

    def outgoing(self) -> Outgoing:
        return Outgoing(self._status, _decoded(self._headers), bytes(self._body))


def _incoming(scope: Message) -> Incoming:
    client = scope.get("client")
    # Where middleware that verifies tokens leaves them: `request.state.claims` of Starlette.
    claims = (scope.get("state") or {}).get("claims") or {}
    return Incoming(
        method=scope["method"],
        path=scope["path"],
        headers=_decoded(scope["headers"]),
        address=client[0] if client else None,
        claims=claims if isinstance(claims, Mapping) else {},
        raw=scope,
    )


async def _refuse(send: Send, refused: Refusal) -> None:
    body = refused.text().encode()
    headers = {
        "Content-Type": "application/json",
        "Content-Length": str(len(body)),
        **refused.headers,
    }
    start = {"type": "http.response.start", "status": refused.status, "headers": _encoded(headers)}
    await send(start)
    await send({"type": "http.response.body", "body": body})


def _encoded(headers: Mapping[str, str]) -> Raw:
    return [
        (name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in headers.items()
    ]


def _decoded(headers: Iterable[tuple[bytes, bytes]]) -> dict[str, str]:
    found: dict[str, str] = {}
    for raw_name, raw_value in headers:
        name, value = raw_name.decode("latin-1").lower(), raw_value.decode("latin-1")
        found[name] = f"{found[name]}, {value}" if name in found else value
    return found
