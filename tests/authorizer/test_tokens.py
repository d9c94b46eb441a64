"""Tokens count if the issuer signed them for us and now, and keys are asked for seldom."""

from __future__ import annotations

import json

import pytest
from cryptography.hazmat.primitives import serialization

from authorizer import jwks
from authorizer.jwks import KeySet, KeysUnavailable
from authorizer.tokens import NotVerified, Tokens, TokenSettings
from tests.authorizer import issuer
from tests.authorizer.issuer import AUDIENCE, ISSUER, NOW, Endpoint, b64, claims, jwk, token


@pytest.fixture
def tokens(endpoint):
    made = TokenSettings(issuer=ISSUER, audience=(AUDIENCE, "another"))
    return Tokens(made, fetch=endpoint.fetch, clock=lambda: NOW)


def read(tokens, text):
    return tokens.claims({"authorization": text})


def test_the_claims_of_a_good_token_are_read(tokens, key, endpoint):
    assert read(tokens, f"Bearer {token(key)}") == claims()
    assert read(tokens, f"bearer {token(key)}")["sub"] == "user-1"
    assert read(tokens, token(key))["sub"] == "user-1"
    assert endpoint.asked == ["https://issuer.example/.well-known/jwks.json"]


@pytest.mark.parametrize(
    "changes",
    [
        {"aud": ["x", "another"]},
        {"aud": None, "client_id": AUDIENCE},
        {"exp": NOW - 59},
        {"exp": NOW + 0.5},
        {"nbf": NOW + 60},
    ],
)
def test_claims_that_hold_are_accepted(tokens, key, changes):
    assert read(tokens, token(key, claims(**changes)))["sub"] == "user-1"


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"iss": "https://issuer.example"}, "issuer"),
        ({"iss": None}, "issuer"),
        ({"iss": [ISSUER]}, "issuer"),
        ({"aud": "other"}, "audience"),
        ({"aud": []}, "audience"),
        ({"aud": None}, "audience"),
        ({"aud": {AUDIENCE: 1}}, "audience"),
        ({"aud": [["the-api"]]}, "audience"),
        ({"aud": "other", "client_id": AUDIENCE}, "audience"),
        ({"exp": NOW - 60}, "expired"),
        ({"exp": None}, "expired"),
        ({"exp": str(NOW + 300)}, "expired"),
        ({"exp": True}, "expired"),
        ({"nbf": NOW + 61}, "not valid yet"),
        ({"nbf": "0"}, "not valid yet"),
    ],
)
def test_claims_that_do_not_hold_are_nobodys(tokens, key, changes, why):
    with pytest.raises(NotVerified, match=why):
        read(tokens, token(key, claims(**changes)))


def pem(key):
    kinds = serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    return key.public_key().public_bytes(*kinds)


@pytest.mark.parametrize("alg", ["none", "None", "NONE", "", None, "rs256", "RS512", "PS256"])
def test_the_algorithm_is_not_the_tokens_to_choose(tokens, key, alg):
    for signature in (None, lambda text: b""):
        with pytest.raises(NotVerified, match="RS256"):
            read(tokens, token(key, header={"alg": alg}, signature=signature))


def test_the_public_key_is_no_secret_of_an_hmac(tokens, key):
    secrets = [pem(key), jwk(key)["n"].encode(), json.dumps(jwk(key)).encode()]
    for secret in secrets:
        for alg in ("HS256", "RS256"):
            forged = token(
                key, header={"alg": alg}, signature=lambda text, s=secret: issuer.mac(s, text)
            )
            with pytest.raises(NotVerified):
                read(tokens, forged)


@pytest.mark.parametrize("signature", [b"", b"\x00", b"\x00" * 256, b"\xff" * 256, b"\x00" * 255])
def test_short_and_empty_signatures_are_none(tokens, key, signature):
    with pytest.raises(NotVerified, match="signature"):
        read(tokens, token(key, signature=lambda text: signature))


def test_a_token_with_other_claims_or_another_key_is_not_signed(tokens, key):
    head, _, signature = token(key).split(".")
    other = b64(json.dumps(claims(sub="somebody")).encode())
    with pytest.raises(NotVerified, match="signature"):
        read(tokens, f"{head}.{other}.{signature}")
    with pytest.raises(NotVerified, match="signature"):
        read(tokens, token(issuer.make_key()))


@pytest.mark.parametrize(
    "header",
    [
        {"crit": ["b64"], "b64": False},
        {"kid": None},
        {"kid": 7},
        {"kid": ["key-1"]},
        {"kid": "unknown"},
        # Keys that a token brings along are never looked at.
        {"kid": "own", "jwk": {"kty": "RSA"}, "jku": "https://evil.example/keys"},
    ],
)
def test_headers_that_would_change_the_rules_are_refused(tokens, key, endpoint, header):
    with pytest.raises(NotVerified):
        read(tokens, token(key, header=header))
    assert all(url.startswith(ISSUER) for url in endpoint.asked)


def test_what_is_no_token_is_refused_whatever_it_is(tokens, key):
    good = token(key)
    head, body, signature = good.split(".")
    deep = b64(b"[" * 5000)
    wrong = [
        "",
        "Bearer",
        "Bearer ",
        f"Basic {good}",
        "a.b",
        "..",
        f"{good}.",
        f".{good}",
        f"{head}.{body}",
        f"{head}.{body}.",
        f"{head}=.{body}.{signature}",
        f"{head}.{body}.{signature}==",
        f"{head}.{body}.{signature[:-4]}+/+/",
        f"{head}.{body}.{signature}\u00e9",
        f"{head}.{body}\u00e9.{signature}",
        f"{head}.{body}\udcff.{signature}",
        f"{head}\n.{body}.{signature}",
        f"{deep}.{body}.{signature}",
        f"{b64(b'[1]')}.{body}.{signature}",
        f"{b64(bytes([0xFF, 0xFE]))}.{body}.{signature}",
        f"{head}.{'A' * 20_000}.{signature}",
    ]
    for text in wrong:
        with pytest.raises(NotVerified):
            read(tokens, text)


@pytest.mark.parametrize("payload", [b"[]", b"[" * 5000, b"\xff", b'{"exp": NaN}', b"{"])
def test_a_signed_payload_that_is_no_object_is_refused(tokens, key, payload):
    text = f"{token(key).split('.')[0]}.{b64(payload)}"
    with pytest.raises(NotVerified):
        read(tokens, f"{text}.{b64(issuer.sign(key, text.encode()))}")


def test_a_token_may_be_in_a_header_of_its_own_and_keys_elsewhere(endpoint, key):
    made = TokenSettings(
        issuer=ISSUER,
        audience=(AUDIENCE,),
        header="X-Token",
        jwks_url="https://keys.example/certs",
    )
    tokens = Tokens(made, fetch=endpoint.fetch, clock=lambda: NOW)
    assert tokens.claims({"x-token": token(key)})["sub"] == "user-1"
    assert endpoint.asked == ["https://keys.example/certs"]
    with pytest.raises(NotVerified):
        tokens.claims({"authorization": token(key)})


class Clock:
    now = 1000.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


def test_made_up_key_ids_do_not_make_us_ask_the_issuer_each_time(key, endpoint, clock):
    keys = KeySet("https://k", fetch=endpoint.fetch, clock=clock)
    assert keys.find("key-1") is not None
    for number in range(50):
        assert keys.find(f"made-up-{number}") is None
    assert len(endpoint.asked) == 1
    clock.now += jwks.PAUSE
    assert keys.find("made-up") is None
    assert keys.find("made-up-too") is None
    assert len(endpoint.asked) == 2


def test_a_new_key_is_found_and_a_withdrawn_one_forgotten(key, endpoint, clock):
    keys = KeySet("https://k", fetch=endpoint.fetch, clock=clock)
    assert keys.find("key-1") is not None
    endpoint.keys = [jwk(issuer.make_key(), "key-2")]
    clock.now += jwks.PAUSE
    assert keys.find("key-1") is not None  # still kept
    assert keys.find("key-2") is not None
    assert keys.find("key-1") is None
    endpoint.keys = [jwk(key)]
    clock.now += jwks.KEEP
    assert keys.find("key-2") is None
    assert keys.find("key-1") is not None


def test_keys_that_are_known_outlive_an_outage_of_the_issuer(endpoint, clock):
    keys = KeySet("https://k", fetch=endpoint.fetch, clock=clock)
    endpoint.down = True
    for _ in range(3):
        with pytest.raises(KeysUnavailable):
            keys.find("key-1")
    assert len(endpoint.asked) == 1
    endpoint.down = False
    clock.now += jwks.PAUSE_WITHOUT_KEYS
    assert keys.find("key-1") is not None
    endpoint.down = True
    clock.now += jwks.KEEP
    assert keys.find("key-1") is not None
    endpoint.down, endpoint.raw = False, b"<html>"
    clock.now += jwks.PAUSE
    assert keys.find("key-1") is not None


@pytest.mark.parametrize(
    "raw", [b"", b"[]", b"{}", b'{"keys": {}}', b'{"keys": [1, null, []]}', b"[" * 50_000, b"\xff"]
)
def test_a_document_that_is_no_set_of_keys_gives_none(clock, raw):
    endpoint = Endpoint()
    endpoint.raw = raw
    keys = KeySet("https://k", fetch=endpoint.fetch, clock=clock)
    try:
        assert keys.find("key-1") is None
    except KeysUnavailable:
        assert b"null" not in raw


@pytest.mark.parametrize(
    "change",
    [
        {"kty": "EC"},
        {"kty": None},
        {"use": "enc"},
        {"alg": "RS512"},
        {"alg": "none"},
        {"kid": None},
        {"kid": 1},
        {"e": issuer.whole(1)},
        {"e": issuer.whole(4)},
        {"e": ""},
        {"e": 3},
        {"n": issuer.whole(2**1024 + 1)},
        {"n": issuer.whole(2**2048 - 2)},
        {"n": "!!"},
        {"n": None},
    ],
)
def test_keys_that_do_not_suit_are_left_out_and_the_others_used(key, clock, change):
    endpoint = Endpoint({**jwk(key), **change}, jwk(key, "good"))
    keys = KeySet("https://k", fetch=endpoint.fetch, clock=clock)
    assert keys.find("key-1") is None
    assert keys.find("good") is not None


def test_optional_members_of_a_key_may_be_missing(key, clock):
    plain = {name: value for name, value in jwk(key).items() if name not in {"use", "alg"}}
    assert KeySet("https://k", fetch=Endpoint(plain).fetch, clock=clock).find("key-1") is not None
