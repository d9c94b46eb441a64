"""Servers that misbehave on purpose: what no engine can be made to do."""

from __future__ import annotations

import json
import socket
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

LOOPBACK = "127.0.0.1"
Reply = tuple[int, dict[str, Any]]


def error(code: str, message: str = "as the test wants it", *, status: int = 400) -> Reply:
    """An error as DynamoDB words it."""
    return status, {"__type": f"com.amazonaws.dynamodb.v20120810#{code}", "message": message}


class Server:
    """Answers DynamoDB's protocol with what `answer(operation, body)` returns.

    An answer of None closes the connection without a word. `seen` has every operation.
    """

    def __init__(self, answer: Callable[[str, dict[str, Any]], Reply | None]) -> None:
        self.answer = answer
        self.seen: list[str] = []
        self.url = ""


@contextmanager
def serving(answer: Callable[[str, dict[str, Any]], Reply | None]) -> Iterator[Server]:
    server = Server(answer)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            operation = self.headers["X-Amz-Target"].rpartition(".")[2]
            server.seen.append(operation)
            reply = server.answer(operation, body)
            if reply is None:
                self.close_connection = True
                return
            status, content = reply
            data = json.dumps(content).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/x-amz-json-1.0")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

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


class BlackHole:
    """Accepts every connection and never says a word. `accepted` counts them."""

    def __init__(self, listener: socket.socket) -> None:
        self.url = f"http://{LOOPBACK}:{listener.getsockname()[1]}"
        self.accepted = 0


@contextmanager
def black_hole() -> Iterator[BlackHole]:
    with socket.create_server((LOOPBACK, 0)) as listener:
        hole = BlackHole(listener)
        connections: list[socket.socket] = []

        def swallow() -> None:
            while True:
                try:
                    connection, _ = listener.accept()
                except OSError:
                    return
                hole.accepted += 1
                connections.append(connection)

        thread = threading.Thread(target=swallow, daemon=True)
        thread.start()
        try:
            yield hole
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
