"""RS256 signatures, checked in Python: functions carry no compiled packages (ADR 0057).

Checking needs the public key alone, so nothing here is secret and no time that it takes tells
anything. What has to be right is that the padding is never parsed: the one message that may come
out is built whole, and compared whole (RFC 8017, section 8.2.2).
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

# A DigestInfo of SHA-256, up to the digest itself.
_SHA256 = bytes.fromhex("3031300d060960864801650304020105000420")

LEAST_BITS = 2048
# Larger moduli would let an answer of the issuer's keep the function busy.
MOST_BITS = 8192


@dataclass(frozen=True, slots=True)
class PublicKey:
    """An RSA key. One that no honest issuer has is refused with ValueError."""

    modulus: int
    exponent: int

    def __post_init__(self) -> None:
        if not 2 ** (LEAST_BITS - 1) <= self.modulus < 2**MOST_BITS or self.modulus % 2 == 0:
            raise ValueError("the modulus must be odd, of 2048 to 8192 bits")
        # With an exponent of 1 every message would be its own signature.
        if not 3 <= self.exponent < 2**32 or self.exponent % 2 == 0:
            raise ValueError("the exponent must be odd, from 3 to 2^32")

    def verifies(self, message: bytes, signature: bytes) -> bool:
        """Whether the signature is the message's, by RSASSA-PKCS1-v1_5 with SHA-256."""
        size = (self.modulus.bit_length() + 7) // 8
        number = int.from_bytes(signature, "big")
        if len(signature) != size or number >= self.modulus:
            return False
        found = pow(number, self.exponent, self.modulus).to_bytes(size, "big")
        ending = b"\x00" + _SHA256 + hashlib.sha256(message).digest()
        return found == b"\x00\x01" + b"\xff" * (size - 2 - len(ending)) + ending
