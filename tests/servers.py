"""Servers that misbehave on purpose: what no engine can be made to do."""

from __future__ import annotations

import http.client
import json
import socket
import threading
from contextlib import contextmanager
from enum import Enum
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

LOOPBACK = "127.0.0.1"


class Do(Enum):
    """What a server does with a request, other than answering it itself."""

    DROP = "close the connection; the request has no effect"
    FORWARD = "let the engine answer"
    LOSE = "let the engine do it, and close the connection instead of answering"


Reply = tuple[int, dict[str, Any]] | Do


def error(code: str, *, status: int = 400, **more: Any) -> Reply:
    """An error as DynamoDB words it."""
    kind = f"com.amazonaws.dynamodb.v20120810#{code}"
    return status, {"__type": kind, "message": "as the test wants it", **more}


THROTTLE = error("ProvisionedThroughputExceededException")


class Server:
    """Speaks DynamoDB's protocol: `answer(operation, body)` decides about each request.

    `seen` has every operation that arrived. `answer` may be replaced at any time.
    """

    def __init__(self, answer: Callable[[str, dict[str, Any]], Reply]) -> None:
        self.answer = answer
        self.seen: list[str] = []
        self.url = ""


@contextmanager
def serving(
    answer: Callable[[str, dict[str, Any]], Reply], *, before: str | None = None
) -> Iterator[Server]:
    """A server that stands alone or, with `before`, before the engine at that URL."""
    server = Server(answer)
    engine = urlsplit(before).netloc if before else ""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            data = self.rfile.read(int(self.headers["Content-Length"]))
            operation = self.headers["X-Amz-Target"].rpartition(".")[2]
            server.seen.append(operation)
            reply = server.answer(operation, json.loads(data))
            if reply is Do.DROP:
                self.close_connection = True
                return
            status, content = self.forward(data) if isinstance(reply, Do) else _encoded(reply)
            if reply is Do.LOSE:
                self.close_connection = True
                return
            self.send_response(status)
            self.send_header("Content-Type", "application/x-amz-json-1.0")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def forward(self, data: bytes) -> tuple[int, bytes]:
            connection = http.client.HTTPConnection(engine)
            names = ("X-Amz-Target", "Content-Type", "Authorization", "X-Amz-Date")
            headers = {name: self.headers[name] for name in names if name in self.headers}
            connection.request("POST", "/", data, headers)
            response = connection.getresponse()
            content = response.read()
            connection.close()
            return response.status, content

        def log_message(self, *_: Any) -> None:
            """Tests read `seen`."""

    class Listener(ThreadingHTTPServer):
        daemon_threads = True
        request_queue_size = 256

        def handle_error(self, *_: Any) -> None:
            """A client that gave up is what some tests are about."""

    with Listener((LOOPBACK, 0), Handler) as listener:
        server.url = f"http://{LOOPBACK}:{listener.server_port}"
        # How often it looks whether it should end; the end of each test waits for that.
        thread = threading.Thread(target=listener.serve_forever, args=(0.02,), daemon=True)
        thread.start()
        try:
            yield server
        finally:
            listener.shutdown()
            thread.join()


def _encoded(reply: tuple[int, dict[str, Any]]) -> tuple[int, bytes]:
    return reply[0], json.dumps(reply[1]).encode()


@contextmanager
def black_hole() -> Iterator[str]:
    """The URL of a server that accepts every connection and never says a word."""
    with socket.create_server((LOOPBACK, 0)) as listener:
        connections: list[socket.socket] = []

        def swallow() -> None:
            while True:
                try:
                    connections.append(listener.accept()[0])
                except OSError:
                    return

        thread = threading.Thread(target=swallow, daemon=True)
        thread.start()
        try:
            yield f"http://{LOOPBACK}:{listener.getsockname()[1]}"
        finally:
            # Wakes accept() up; closing alone does not.
            listener.shutdown(socket.SHUT_RDWR)
            thread.join()
            for connection in connections:
                connection.close()


def nobody() -> str:
    """A URL at which connections are refused."""
    with socket.socket() as probe:
        probe.bind((LOOPBACK, 0))
        return f"http://{LOOPBACK}:{probe.getsockname()[1]}"
