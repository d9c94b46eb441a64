"""An issuer of tokens, with `cryptography` as the second opinion on signatures."""

from __future__ import annotations

import base64
import json

from cryptography.hazmat.primitives import hashes, hmac
from cryptography.hazmat.primitives.asymmetric import padding, rsa

ISSUER = "https://issuer.example/"
AUDIENCE = "the-api"
NOW = 1_800_000_000


def b64(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


def whole(number: int) -> str:
    return b64(number.to_bytes((number.bit_length() + 7) // 8, "big"))


def make_key(bits=2048, exponent=65537):
    return rsa.generate_private_key(public_exponent=exponent, key_size=bits)


def jwk(key, kid="key-1", **more):
    numbers = key.public_key().public_numbers()
    known = {"kty": "RSA", "use": "sig", "alg": "RS256", "kid": kid}
    return {**known, "n": whole(numbers.n), "e": whole(numbers.e), **more}


def sign(key, message: bytes) -> bytes:
    return key.sign(message, padding.PKCS1v15(), hashes.SHA256())


def mac(secret: bytes, message: bytes) -> bytes:
    made = hmac.HMAC(secret, hashes.SHA256())
    made.update(message)
    return made.finalize()


def claims(**changes):
    usual = {"iss": ISSUER, "aud": AUDIENCE, "sub": "user-1", "exp": NOW + 300}
    return {name: value for name, value in (usual | changes).items() if value is not None}


def token(key, payload=None, *, header=None, signature=None):
    """A signed token; `signature` is a function of the signed text that makes another one."""
    usual = {"alg": "RS256", "typ": "JWT", "kid": "key-1"}
    head = {name: value for name, value in (usual | (header or {})).items() if value is not None}
    body = claims() if payload is None else payload
    text = f"{b64(json.dumps(head).encode())}.{b64(json.dumps(body).encode())}"
    signed = sign(key, text.encode()) if signature is None else signature(text.encode())
    return f"{text}.{b64(signed)}"


class Endpoint:
    """Where the keys are: counts who asks, and can be taken away."""

    def __init__(self, *keys):
        self.keys = list(keys)
        self.asked = []
        self.down = False
        self.raw = None

    def fetch(self, url: str) -> bytes:
        self.asked.append(url)
        if self.down:
            raise OSError("as the test wants it")
        return self.raw if self.raw is not None else json.dumps({"keys": self.keys}).encode()
