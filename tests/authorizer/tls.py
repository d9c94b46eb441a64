"""A server on loopback that speaks TLS."""

from __future__ import annotations

import ssl
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

LOOPBACK = "127.0.0.1"


@contextmanager
def serve_tls(certificate):
    """A server that answers with `server.answers[path]`: a status, headers and a body."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            self.server.seen.append(self.path)
            status, headers, body = self.server.answers[self.path]
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *args):
            pass

    made = ThreadingHTTPServer((LOOPBACK, 0), Handler)
    made.answers, made.seen = {}, []
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    made.socket = context.wrap_socket(made.socket, server_side=True)
    made.handle_error = lambda *args: None  # clients that do not trust it hang up
    made.url = f"https://{LOOPBACK}:{made.server_port}"
    thread = threading.Thread(target=made.serve_forever, args=(0.02,))
    thread.start()
    try:
        yield made
    finally:
        made.shutdown()
        thread.join()
        made.server_close()
