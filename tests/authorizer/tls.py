"""A server on loopback that speaks TLS."""

from __future__ import annotations

import datetime as dt
import ipaddress
import ssl
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.x509.oid import NameOID

from tests.authorizer import issuer

LOOPBACK = "127.0.0.1"


def make_certificate(folder):
    """A file with a key and a certificate for loopback, signed by itself."""
    key = issuer.make_key()
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, LOOPBACK)])
    now = dt.datetime.now(dt.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - dt.timedelta(days=1))
        .not_valid_after(now + dt.timedelta(days=1))
        .add_extension(
            x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address(LOOPBACK))]),
            critical=False,
        )
        .sign(key, hashes.SHA256())
    )
    file = folder / "both.pem"
    private = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    file.write_bytes(private + made.public_bytes(serialization.Encoding.PEM))
    return file


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
