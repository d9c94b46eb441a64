"""An engine that answers at once, or so many milliseconds later, with what was recorded.

python replay.py replies.json 20

Ministack takes milliseconds for a request: measured against it, every client is as slow. This
one takes microseconds, so that what is measured is the client. It prints its port.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from email.utils import formatdate
from pathlib import Path
from typing import Any


class Replay(asyncio.Protocol):
    """One connection."""

    replies: dict[str, bytes]
    delay: float

    def __init__(self) -> None:
        self._data = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport: Any = transport

    def data_received(self, data: bytes) -> None:
        self._data += data
        while True:
            end = self._data.find(b"\r\n\r\n")
            if end < 0:
                return
            head = self._data[:end].lower()
            at = head.find(b"content-length:")
            length = int(head[at + 15 :].partition(b"\r\n")[0]) if at >= 0 else 0
            if len(self._data) < end + 4 + length:
                return
            body = self._data[end + 4 : end + 4 + length]
            at = head.find(b"x-amz-target:")
            target = self._data[at:end].partition(b"\r\n")[0].rpartition(b".")[2].decode()
            self._data = self._data[end + 4 + length :]
            answer = self._answer(target, body)
            if self.delay:
                asyncio.get_running_loop().call_later(self.delay, self._write, answer)
            else:
                self._write(answer)

    def _answer(self, operation: str, body: bytes) -> bytes:
        params = json.loads(body or b"{}")
        item = params.get("Key") or params.get("Item") or {}
        key = f"{operation} {item.get('PK', {}).get('S', '')}"
        found = self.replies.get(key) or self.replies.get(f"{operation} ") or b"{}"
        date = formatdate(usegmt=True).encode()
        return (
            b"HTTP/1.1 200 OK\r\nContent-Type: application/x-amz-json-1.0\r\nDate: "
            + date
            + b"\r\nContent-Length: %d\r\n\r\n" % len(found)
            + found
        )

    def _write(self, answer: bytes) -> None:
        if not self._transport.is_closing():
            self._transport.write(answer)


async def serve() -> None:
    loop = asyncio.get_running_loop()
    server = await loop.create_server(Replay, "127.0.0.1", 0, backlog=2_000)
    # Whoever started this holds the other end: when that is gone, so is the need.
    loop.add_reader(sys.stdin.fileno(), os._exit, 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    recorded = json.loads(Path(sys.argv[1]).read_text())
    Replay.replies = {key: json.dumps(value).encode() for key, value in recorded.items()}
    Replay.delay = float(sys.argv[2]) / 1000
    asyncio.run(serve())
