"""RS256 in Python against `cryptography`, and against those who would forge."""

from __future__ import annotations

import pytest
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import padding
from hypothesis import given, settings
from hypothesis import strategies as st

from authorizer.rsa import _SHA256, PublicKey
from tests.authorizer import issuer

MESSAGE = b"header.payload"


def public(key):
    numbers = key.public_key().public_numbers()
    return PublicKey(numbers.n, numbers.e)


@pytest.mark.parametrize("bits", [2048, 2056, 3072, 4096])
@pytest.mark.parametrize("exponent", [3, 65537])
def test_what_cryptography_signs_is_verified(bits, exponent):
    key = issuer.make_key(bits, exponent)
    signature = issuer.sign(key, MESSAGE)
    assert public(key).verifies(MESSAGE, signature)
    assert not public(key).verifies(MESSAGE + b"!", signature)
    assert not public(issuer.make_key(bits)).verifies(MESSAGE, signature)


@settings(max_examples=200)
@given(message=st.binary(max_size=300))
def test_any_message_that_is_signed_is_verified(key, message):
    assert public(key).verifies(message, issuer.sign(key, message))


@settings(max_examples=300)
@given(place=st.integers(0, 255), bit=st.integers(0, 7))
def test_a_signature_with_one_bit_changed_is_none(key, place, bit):
    signature = bytearray(issuer.sign(key, MESSAGE))
    signature[place] ^= 1 << bit
    assert not public(key).verifies(MESSAGE, bytes(signature))


@settings(max_examples=300)
@given(signature=st.binary(max_size=300))
def test_what_nobody_signed_is_no_signature(key, signature):
    assert not public(key).verifies(MESSAGE, signature)


def test_signatures_of_other_lengths_and_beyond_the_modulus_are_none(key):
    signature = issuer.sign(key, MESSAGE)
    n = key.public_key().public_numbers().n
    number = int.from_bytes(signature, "big")
    wrong = [
        b"",
        b"\x00" * 256,
        b"\x01".rjust(256, b"\x00"),
        n.to_bytes(256, "big"),
        (n - 1).to_bytes(256, "big"),
        signature[:-1],
        signature + b"\x00",
        b"\x00" + signature,
        # The same number of the ring, written larger.
        (number + n).to_bytes(257, "big"),
    ]
    assert not any(public(key).verifies(MESSAGE, one) for one in wrong)


def raised(key, encoded):
    """What a holder of the private key could sign: any encoded message, well-formed or not."""
    numbers = key.private_numbers()
    number = pow(int.from_bytes(encoded, "big"), numbers.d, numbers.public_numbers.n)
    return number.to_bytes(256, "big")


def test_a_message_that_is_padded_otherwise_is_refused_even_with_the_right_digest(key):
    hashed = hashes.Hash(hashes.SHA256())
    hashed.update(MESSAGE)
    digest = hashed.finalize()
    ending = b"\x00" + _SHA256 + digest
    right = b"\x00\x01" + b"\xff" * (254 - len(ending)) + ending
    assert public(key).verifies(MESSAGE, raised(key, right))
    wrong = {
        "less padding, the rest behind it": (b"\x00\x01" + b"\xff" * 8 + ending).ljust(256, b"x"),
        "another type of block": b"\x00\x02" + right[2:],
        "a hole in the padding": right[:10] + b"\x00" + right[11:],
        "no separator": right[: -len(ending)] + b"\xff" + right[-len(ending) + 1 :],
        "another hash's name": right.replace(_SHA256, _SHA256[:-6] + b"\x03\x05\x00\x04\x20\x00"),
        "parameters left out": b"\x00\x01"
        + b"\xff" * (256 - 2 - 50)
        + b"\x00"
        + bytes.fromhex("302f300b0609608648016503040201")
        + b"\x04\x20"
        + digest,
    }
    for what, encoded in wrong.items():
        assert len(encoded) == 256, what
        assert not public(key).verifies(MESSAGE, raised(key, encoded)), what


def test_signatures_of_other_schemes_are_none(key):
    pss = padding.PSS(padding.MGF1(hashes.SHA256()), padding.PSS.DIGEST_LENGTH)
    others = [
        key.sign(MESSAGE, pss, hashes.SHA256()),
        key.sign(MESSAGE, padding.PKCS1v15(), hashes.SHA512()),
        key.sign(MESSAGE, padding.PKCS1v15(), hashes.SHA384()),
    ]
    assert not any(public(key).verifies(MESSAGE, one) for one in others)


@pytest.mark.parametrize(
    ("modulus", "exponent"),
    [
        (0, 65537),
        (1, 65537),
        (2**2047 - 1, 65537),
        (2**1024 + 1, 65537),
        (2**2048 - 2, 65537),
        (2**8192 + 1, 65537),
        (-(2**2048) + 1, 65537),
        (2**2048 - 1, 0),
        (2**2048 - 1, 1),
        (2**2048 - 1, 2),
        (2**2048 - 1, 65536),
        (2**2048 - 1, -3),
        (2**2048 - 1, 2**32 + 1),
    ],
    ids=map(str, range(13)),
)
def test_keys_that_no_honest_issuer_has_are_refused(modulus, exponent):
    with pytest.raises(ValueError, match="must be odd"):
        PublicKey(modulus, exponent)
