"""JSON web tokens: claims count only if the issuer has signed them for us, and now.

The algorithm is not the token's to choose: RS256, or the token is nobody's.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NoReturn

from authorizer.jwks import Fetch, KeySet, decoded, fetch

ALGORITHM = "RS256"
LEEWAY = 60  # seconds by which clocks may differ
MOST_CHARACTERS = 16 * 1024


class NotVerified(Exception):
    """There is no token, or one that does not count. Says why, and nothing that was in it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TokenSettings:
    """Whose tokens count, and where they are."""

    issuer: str
    audience: tuple[str, ...]
    jwks_url: str | None = None
    header: str = "authorization"
    required: bool = False
    pass_on: tuple[str, ...] = ()


class Tokens:
    """Reads the claims of requests."""

    def __init__(
        self,
        settings: TokenSettings,
        *,
        fetch: Fetch = fetch,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.settings = settings
        self._clock = clock
        url = settings.jwks_url or f"{settings.issuer.rstrip('/')}/.well-known/jwks.json"
        self._keys = KeySet(url, fetch=fetch, clock=clock)

    def claims(self, headers: Mapping[str, str]) -> dict[str, Any]:
        """Those of the request's token, or NotVerified."""
        given = headers.get(self.settings.header.lower(), "")
        scheme, _, token = given.partition(" ")
        if not token:
            token = given  # a header of its own may hold the bare token
        elif scheme.lower() != "bearer":
            raise NotVerified("not a bearer token")
        claims = self._signed(token.strip())
        self._check(claims)
        return claims

    def _signed(self, token: str) -> dict[str, Any]:
        parts = token.split(".")
        if len(parts) != 3 or len(token) > MOST_CHARACTERS:
            raise NotVerified("not a token")
        try:
            header = _object(decoded(parts[0]))
            payload, signature = decoded(parts[1]), decoded(parts[2])
        except (ValueError, RecursionError):
            raise NotVerified("not a token") from None
        # An extension that must be understood is not; an algorithm that we do not pin could make
        # a public key the secret of an HMAC, or ask for no signature at all.
        if header.get("alg") != ALGORITHM or "crit" in header:
            raise NotVerified("not signed with RS256")
        kid = header.get("kid")
        key = self._keys.find(kid) if isinstance(kid, str) else None
        if key is None:
            raise NotVerified("not a key of the issuer")
        if not key.verifies(f"{parts[0]}.{parts[1]}".encode("ascii"), signature):
            raise NotVerified("the signature is wrong")
        try:
            return _object(payload)
        except (ValueError, RecursionError):
            raise NotVerified("not a token") from None

    def _check(self, claims: Mapping[str, Any]) -> None:
        now = self._clock()
        if claims.get("iss") != self.settings.issuer:
            raise NotVerified("of another issuer")
        # Cognito's access tokens say for whom they are in `client_id`, as API Gateway knows too.
        meant = claims.get("aud", claims.get("client_id"))
        audience = meant if isinstance(meant, list) else [meant]
        if not any(one in self.settings.audience for one in audience if isinstance(one, str)):
            raise NotVerified("for another audience")
        expires, starts = _moment(claims.get("exp")), _moment(claims.get("nbf", 0))
        if expires is None or now >= expires + LEEWAY:
            raise NotVerified("expired")
        if starts is None or starts > now + LEEWAY:
            raise NotVerified("not valid yet")


def _moment(value: object) -> float | None:
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None


def _object(raw: bytes) -> dict[str, Any]:
    found = json.loads(raw.decode("utf-8"), parse_constant=_refuse)
    if not isinstance(found, dict):
        raise ValueError("not an object")  # noqa: TRY004 - of the wrong form, as any text
    return found


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is no JSON")
