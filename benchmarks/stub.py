"""A transport that answers in the process itself, under either contender's own driver.

What remains is the client: deciding, building and signing a request, reading an answer. Runs in
the contender's environment. The answer is the one that was recorded for a warm acquire.
"""

from __future__ import annotations

import importlib
import io
from email.utils import formatdate
from typing import Any


def _headers(body: bytes) -> dict[str, str]:
    return {
        "Content-Type": "application/x-amz-json-1.0",
        "Date": formatdate(usegmt=True),
        "Content-Length": str(len(body)),
    }


class Canned:
    """Headgate's connection, whose socket is not there. The answer's bytes are read as any."""

    used = 0.0

    def __init__(self, body: bytes) -> None:
        wire = importlib.import_module("headgate.drivers.wire")
        self._inbox = wire.Inbox()
        head = "".join(f"{name}: {value}\r\n" for name, value in _headers(body).items())
        self._answer = f"HTTP/1.1 200 OK\r\n{head}\r\n".encode() + body

    def usable(self, _: float) -> bool:
        return True

    def exchange(self, _: bytes) -> Any:
        return self._inbox.feed(self._answer)

    def close(self) -> None:
        """There is nothing to close."""


class CannedAio(Canned):
    """The same for the driver on an event loop."""

    async def exchange(self, request: bytes, _: float) -> Any:  # type: ignore[override]
        return super().exchange(request)


class _Raw(io.BytesIO):
    """A response's body as urllib3 has it."""

    def stream(self, **_: Any) -> Any:
        yield self.read()


class _AioRaw:
    """A response's body as aiohttp has it."""

    def __init__(self, body: bytes) -> None:
        self._body = body

    async def read(self) -> bytes:
        return self._body


def into_ours(limiter: Any, body: bytes) -> None:
    """Under a limiter that has sent something before, so that its endpoint is known."""
    driver = limiter._driver  # noqa: SLF001
    kind = CannedAio if type(driver).__name__ == "FastAioDriver" else Canned
    idle = driver._idle  # noqa: SLF001
    while idle:
        idle.pop().close()
    idle.append(kind(body))


def into_botocore(client: Any, body: bytes, *, aio: bool) -> None:
    """Under a client of boto3 or aiobotocore, after it has signed a request."""
    headers = _headers(body)
    if aio:
        kind, raw = importlib.import_module("aiobotocore.awsrequest").AioAWSResponse, _AioRaw
    else:
        kind, raw = importlib.import_module("botocore.awsrequest").AWSResponse, _Raw

    def answer(request: Any, **_: Any) -> Any:
        return kind(request.url, 200, headers, raw(body))

    client.meta.events.register("before-send.dynamodb.UpdateItem", answer)
