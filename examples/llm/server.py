"""A completion server to talk to without a network or a bill. It answers as the real ones do:
a text, and what it took in tokens, which here are words.
"""

import json
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Completions(BaseHTTPRequestHandler):
    """POST /v1/chat/completions. A prompt with the word "fail" is answered with 500."""

    def do_POST(self):
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        words = asked["messages"][-1]["content"].split()
        if self.path != "/v1/chat/completions" or "fail" in words:
            self.send_error(500)
            return
        text = [*words, *words][: asked["max_tokens"]]
        usage = {"prompt_tokens": len(words), "completion_tokens": len(text)}
        usage["total_tokens"] = sum(usage.values())
        choice = {"message": {"role": "assistant", "content": " ".join(text)}}
        body = json.dumps({"choices": [choice], "usage": usage}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        """What happens is told by the caller."""


@contextmanager
def completion_server():
    """The URL of a running server."""
    with ThreadingHTTPServer(("127.0.0.1", 0), Completions) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()
