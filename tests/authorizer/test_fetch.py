"""The issuer's keys over real TLS on loopback: by https, from there, and no more than that."""

from __future__ import annotations

import pytest

from authorizer import jwks
from authorizer.jwks import KeySet, KeysUnavailable, fetch
from tests.authorizer import issuer
from tests.authorizer.tls import LOOPBACK, serve_tls
from tests.certificates import make_certificate


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    return make_certificate(tmp_path_factory.mktemp("tls"))


@pytest.fixture
def server(certificate):
    with serve_tls(certificate) as made:
        yield made


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
    "url", ["http://127.0.0.1:1/jwks", "data:,x", "ftp://127.0.0.1/x", "HTTP://x"]
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
