"""The issuer's keys over real TLS on loopback: by https, from there, and no more than that."""

from __future__ import annotations

import datetime as dt
import ipaddress
import ssl
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.x509.oid import NameOID

from authorizer import jwks
from authorizer.jwks import KeySet, KeysUnavailable, fetch
from tests.authorizer import issuer

LOOPBACK = "127.0.0.1"


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
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
    file = tmp_path_factory.mktemp("tls") / "both.pem"
    private = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    file.write_bytes(private + made.public_bytes(serialization.Encoding.PEM))
    return file


@pytest.fixture
def server(certificate):
    """Answers with `server.answers[path]`: a status, headers and a body."""

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
    thread = threading.Thread(target=made.serve_forever)
    thread.start()
    yield made
    made.shutdown()
    thread.join()
    made.server_close()


@pytest.fixture
def trusted(server, certificate, monkeypatch):
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    monkeypatch.setenv("NO_PROXY", LOOPBACK)
    return server


def test_keys_come_over_tls(trusted, key):
    trusted.answers["/jwks"] = (200, {}, issuer.Endpoint(issuer.jwk(key)).fetch(""))
    assert KeySet(f"{trusted.url}/jwks").find("key-1") is not None
    assert trusted.seen == ["/jwks"]


def test_an_issuer_that_cannot_prove_who_it_is_is_not_believed(server, monkeypatch):
    monkeypatch.setenv("NO_PROXY", LOOPBACK)
    server.answers["/jwks"] = (200, {}, b'{"keys": []}')
    with pytest.raises(KeysUnavailable):
        KeySet(f"{server.url}/jwks").find("key-1")
    assert server.seen == []


@pytest.mark.parametrize(
    "url", ["http://127.0.0.1:1/jwks", "file:///etc/hostname", "ftp://127.0.0.1/x", "HTTP://x"]
)
def test_only_https_is_fetched(url):
    with pytest.raises(ValueError, match="https"):
        fetch(url)


@pytest.mark.parametrize("status", [301, 302, 307, 308])
def test_a_redirect_is_not_followed(trusted, status):
    trusted.answers["/jwks"] = (status, {"Location": "/other"}, b"")
    trusted.answers["/other"] = (200, {}, b'{"keys": []}')
    with pytest.raises(OSError, match="redirect"):
        fetch(f"{trusted.url}/jwks")
    assert trusted.seen == ["/jwks"]


def test_an_answer_without_end_is_cut(trusted):
    trusted.answers["/jwks"] = (200, {}, b" " * (jwks.MOST_BYTES + 1))
    with pytest.raises(ValueError, match="larger"):
        fetch(f"{trusted.url}/jwks")


def test_an_error_of_the_issuer_is_an_error(trusted):
    trusted.answers["/jwks"] = (500, {}, b'{"keys": []}')
    with pytest.raises(OSError, match="500"):
        fetch(f"{trusted.url}/jwks")
