"""The public keys of an issuer, fetched when they are needed and kept."""

from __future__ import annotations

import base64
import binascii
import json
import logging
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from typing import Any, NoReturn

from authorizer.rsa import PublicKey

logger = logging.getLogger("headgate.authorizer")

TIMEOUT = 2.0  # seconds, to connect and for each read
MOST_BYTES = 256 * 1024
MOST_KEYS = 100
KEEP = 3600.0  # after an hour they are fetched again: a key that was withdrawn is forgotten
# Tokens with made-up key ids must not make us ask the issuer for each of them.
PAUSE = 60.0
PAUSE_WITHOUT_KEYS = 5.0

Fetch = Callable[[str], bytes]


class KeysUnavailable(Exception):
    """The issuer's keys were never fetched: nothing can be verified."""


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """A redirect could lead away from https, or from the issuer."""

    def redirect_request(self, req: Any, fp: Any, code: int, msg: str, *rest: Any) -> NoReturn:
        del rest
        raise urllib.error.HTTPError(req.full_url, code, f"a redirect: {msg}", None, fp)  # type: ignore[arg-type]


def fetch(url: str) -> bytes:
    """The document, by https and nothing else."""
    if not url.startswith("https://"):
        raise ValueError("keys are fetched by https alone")
    opener = urllib.request.build_opener(_NoRedirect())
    with opener.open(url, timeout=TIMEOUT) as response:
        document: bytes = response.read(MOST_BYTES + 1)
    if len(document) > MOST_BYTES:
        raise ValueError(f"the keys are larger than {MOST_BYTES} bytes")
    return document


class KeySet:
    """Keys by their ids, fetched at most once a minute."""

    def __init__(
        self, url: str, *, fetch: Fetch = fetch, clock: Callable[[], float] = time.time
    ) -> None:
        self._url = url
        self._fetch = fetch
        self._clock = clock
        self._keys: Mapping[str, PublicKey] | None = None
        self._stale_at = 0.0
        self._not_before = 0.0

    def find(self, kid: str) -> PublicKey | None:
        """The key of that id, if the issuer has it."""
        now = self._clock()
        wanting = self._keys is None or kid not in self._keys or now >= self._stale_at
        if wanting and now >= self._not_before:
            self._refresh(now)
        if self._keys is None:
            raise KeysUnavailable
        return self._keys.get(kid)

    def _refresh(self, now: float) -> None:
        try:
            self._keys = _parsed(self._fetch(self._url))
        except (OSError, ValueError, RecursionError) as error:
            # Keys that are known stay good: the issuer's outage need not become ours.
            logger.warning("the issuer's keys could not be fetched: %s", type(error).__name__)
            self._not_before = now + (PAUSE if self._keys else PAUSE_WITHOUT_KEYS)
        else:
            self._not_before, self._stale_at = now + PAUSE, now + KEEP


def _parsed(document: bytes) -> dict[str, PublicKey]:
    listed = json.loads(document)
    if not isinstance(listed, dict) or not isinstance(listed.get("keys"), list):
        raise ValueError("no set of keys")  # noqa: TRY004 - of the wrong form, as any document
    found = {}
    for entry in listed["keys"][:MOST_KEYS]:
        if isinstance(entry, dict) and (key := _key(entry)) is not None:
            found[str(entry["kid"])] = key
    return found


def _key(entry: Mapping[str, Any]) -> PublicKey | None:
    """A key for RS256. Issuers list others beside it: for encryption, of other algorithms."""
    suits = (
        entry.get("kty") == "RSA"
        and entry.get("use", "sig") == "sig"
        and entry.get("alg", "RS256") == "RS256"
        and isinstance(entry.get("kid"), str)
    )
    if not suits:
        return None
    try:
        return PublicKey(_number(entry["n"]), _number(entry["e"]))
    except (KeyError, TypeError, ValueError):
        return None


def _number(text: str) -> int:
    return int.from_bytes(decoded(text), "big")


def decoded(text: str) -> bytes:
    """Base64url as JOSE writes it: its own alphabet, no padding, no second way to write a value.
    Anything else is a ValueError.
    """
    try:
        raw = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
    except binascii.Error as error:
        raise ValueError(str(error)) from error
    # The decoder skips what it does not know.
    if base64.urlsafe_b64encode(raw).rstrip(b"=").decode() != text:
        raise ValueError("not base64url")
    return raw
