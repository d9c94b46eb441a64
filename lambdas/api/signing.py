"""Leases as callers hold them: what was drawn, signed, so that nobody can make one up.

hg1.{key id}.{what the ticket holds, as JSON}.{HMAC-SHA256 of all before}

The key is a secret of Secrets Manager. One that was replaced is still accepted, as the secret's
previous version, so that leases outlive a rotation.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import time
import zlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from aws_lambda_powertools import Logger
from botocore.exceptions import BotoCoreError, ClientError

from api.answers import BadLease
from headgate import RateLimiterUnavailable, Ticket

logger = Logger(child=True)

VERSION = "hg1"
STAGES = ("AWSCURRENT", "AWSPREVIOUS")
LEAST_KEY = 32  # bytes
KEPT = 300.0  # seconds for which keys are known
PAUSE = 10.0  # seconds between looking for a key that is not known
MAX_HELD = 65_536  # bytes of a ticket, unpacked

Fetch = Callable[[str], str | None]
"""The secret's value at a stage; None if it has none there."""


class Signer:
    """Makes leases of tickets and tickets of leases."""

    def __init__(self, fetch: Fetch, clock: Callable[[], float] = time.monotonic) -> None:
        self._fetch = fetch
        self._clock = clock
        self._keys: dict[str, bytes] = {}
        self._current = ""
        self._fetched: float | None = None

    def ready(self) -> None:
        """Makes sure of a key, so that nothing is taken which could not be signed for."""
        self._refresh(KEPT)

    def sign(self, ticket: Ticket) -> str:
        """The lease for a ticket, after `ready`."""
        held = json.dumps(ticket.as_dict(), separators=(",", ":"), ensure_ascii=False)
        signed = f"{VERSION}.{self._current}.{_encoded(zlib.compress(held.encode(), 9))}"
        return f"{signed}.{_encoded(_mac(self._keys[self._current], signed))}"

    def read(self, lease: str) -> Ticket:
        """The ticket of a lease that was signed here and is as it was then."""
        signed, _, mac = lease.rpartition(".")
        version, key_id, held = (*signed.split("."), "", "", "")[:3]
        if version != VERSION or signed.count(".") != 2:
            raise BadLease(f"not a lease: it starts with {lease[:8]!r}, a lease with '{VERSION}.'")
        self.ready()
        if key_id not in self._keys:
            self._refresh(PAUSE)
        key = self._keys.get(key_id)
        given = _decoded(mac)
        if key is None or not hmac.compare_digest(_mac(key, signed), given):
            raise BadLease("the lease was not given out here, or was altered")
        return Ticket.from_dict(_unpacked(held))

    def _refresh(self, after: float) -> None:
        now = self._clock()
        if self._fetched is not None and now - self._fetched < after:
            return
        try:
            values = [self._fetch(stage) for stage in STAGES]
        except (BotoCoreError, ClientError) as error:
            logger.warning("the signing key cannot be read: %s", error)
            if not self._keys:
                raise RateLimiterUnavailable("the signing key cannot be read") from error
        else:
            self._take([value.encode() for value in values if value is not None])
        self._fetched = now

    def _take(self, values: Sequence[bytes]) -> None:
        keys = {_key_id(value): value for value in values if len(value) >= LEAST_KEY}
        if not keys:
            raise RateLimiterUnavailable(f"the signing key has less than {LEAST_KEY} bytes")
        self._keys, self._current = keys, next(iter(keys))


def _key_id(key: bytes) -> str:
    # Of a digest under another name than the signatures': it tells nothing about them.
    return hmac.new(key, b"key id", hashlib.sha256).hexdigest()[:8]


def _mac(key: bytes, signed: str) -> bytes:
    return hmac.new(key, signed.encode(errors="surrogatepass"), hashlib.sha256).digest()


def _encoded(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def _decoded(text: str) -> bytes:
    try:
        return base64.urlsafe_b64decode(text.encode("ascii") + b"=" * (-len(text) % 4))
    except ValueError:
        return b""


def _unpacked(held: str) -> Mapping[str, Any]:
    data: Mapping[str, Any] = json.loads(zlib.decompressobj().decompress(_decoded(held), MAX_HELD))
    return data


def from_secrets_manager(client: Any, secret_id: str) -> Fetch:
    """Fetches the versions of a secret."""

    def fetch(stage: str) -> str | None:
        try:
            found = client.get_secret_value(SecretId=secret_id, VersionStage=stage)
        except client.exceptions.ResourceNotFoundException:
            # Before its first rotation a secret has no previous version.
            return None
        return str(found["SecretString"])

    return fetch
