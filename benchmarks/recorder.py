"""Stands between a client and the engine, and writes down what the meter needs.

Requests are let through one at a time, so that the images before and after each are its own.
A request whose target starts with `Mark.` is for the recorder itself: it begins a chapter.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from benchmarks.meter import Change, Record
from benchmarks.post import Post
from benchmarks.touched import written

LOOPBACK = "127.0.0.1"
_REFUSED_BY_CONDITION = ("ConditionalCheckFailedException", "TransactionCanceledException")


class Recorder:
    """Chapters of records, and the last answer to each kind of request."""

    def __init__(self, engine_url: str) -> None:
        self.url = ""
        self.chapters: dict[str, list[Record]] = {}
        self.replies: dict[str, dict[str, Any]] = {}
        self._engine = Post(engine_url)
        self._chapter = ""
        self._lock = threading.Lock()

    def chapter(self, name: str) -> list[Record]:
        """The records that were made in it."""
        return self.chapters.get(name, [])

    def begin(self, chapter: str) -> None:
        """What is recorded from now on is in this chapter."""
        self._chapter = chapter
        self.chapters.setdefault(chapter, [])

    def serve(self, headers: Mapping[str, str], data: bytes) -> tuple[int, bytes, str]:
        """The engine's answer, written down."""
        target = headers.get("X-Amz-Target", "")
        if target.startswith("Mark."):
            self.begin(target.removeprefix("Mark."))
            return 200, b"{}", "application/json"
        with self._lock:
            operation = target.rpartition(".")[2]
            if not target.startswith("DynamoDB_"):
                return self._forward(headers, data)
            params = json.loads(data or b"{}")
            keys = list(written(operation, params))
            before = [self._item(*key) for key in keys]
            answer = self._forward(headers, data)
            after = [self._item(*key) for key in keys]
            self._note(operation, params, answer, list(map(Change, before, after)))
            return answer

    def _note(
        self,
        operation: str,
        params: dict[str, Any],
        answer: tuple[int, bytes, str],
        changes: list[Change],
    ) -> None:
        status, body, _ = answer
        content = json.loads(body or b"{}")
        if status < 300:
            self.replies[reply_key(operation, params)] = content
        refused = any(code in str(content.get("__type", "")) for code in _REFUSED_BY_CONDITION)
        if status < 300 or refused:
            record = Record(operation, params, status < 300, changes, _found(content))
            self.chapters.setdefault(self._chapter, []).append(record)

    def close(self) -> None:
        """Lets go of the engine."""
        self._engine.close()

    def _item(self, table: str, key: Mapping[str, Any]) -> dict[str, Any] | None:
        asked = {"TableName": table, "Key": key, "ConsistentRead": True}
        return self._engine.ask("GetItem", asked).get("Item")

    def _forward(self, headers: Mapping[str, str], data: bytes) -> tuple[int, bytes, str]:
        names = ("X-Amz-Target", "Content-Type", "Authorization", "X-Amz-Date")
        return self._engine.send({name: headers[name] for name in names if headers.get(name)}, data)


def reply_key(operation: str, params: Mapping[str, Any]) -> str:
    """What a replay looks an answer up by: the operation, and the item if there is one."""
    item = params.get("Key") or params.get("Item") or {}
    return f"{operation} {item.get('PK', {}).get('S', '')}"


def _found(content: Mapping[str, Any]) -> list[dict[str, Any]]:
    if "Item" in content:
        return [content["Item"]]
    responses = content.get("Responses", {})
    if isinstance(responses, dict):
        return [item for items in responses.values() for item in items] + content.get("Items", [])
    return [found["Item"] for found in responses if "Item" in found]


@contextmanager
def recording(engine_url: str) -> Iterator[Recorder]:
    """A recorder before the engine, at an address of its own."""
    recorder = Recorder(engine_url)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        wbufsize = -1  # headers and body in one segment

        def do_POST(self) -> None:
            data = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            status, body, kind = recorder.serve(self.headers, data)  # type: ignore[arg-type]
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)
            self.wfile.flush()

        def log_message(self, *_: Any) -> None:
            """The report speaks."""

    listener = ThreadingHTTPServer((LOOPBACK, 0), Handler)
    listener.daemon_threads = True
    recorder.url = f"http://{LOOPBACK}:{listener.server_port}"
    thread = threading.Thread(target=listener.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield recorder
    finally:
        listener.shutdown()
        thread.join()
        listener.server_close()
        recorder.close()
