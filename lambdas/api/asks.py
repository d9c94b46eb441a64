"""What a caller asks for, in the limiter's terms: scopes become entities and resources.

| scope                | entity                       | resource              |
|----------------------|------------------------------|-----------------------|
| none                 | {identifier}                 | {resource}            |
| user and others      | {scope}:{identifier}         | {resource}@{scope}    |
| ip                   | ip:{address, or IPv6's /64}  | {resource}@ip         |
| api_key              | api_key:{digest of the key}  | {resource}@api_key    |
| global               | global                       | {resource}@global     |

Each scope has resources of its own, since its limits are its own, and since what is used would
otherwise be counted once for each scope.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from headgate import Request, ValidationError
from headgate.middleware import Incoming, by_ip
from headgate.middleware.keys import ANONYMOUS

GLOBAL = "global"
IP = "ip"
API_KEY = "api_key"
DIGEST = 32  # hexadecimal digits: 128 bits


@dataclass(frozen=True, slots=True)
class Named:
    """A request to the limiter, and the names by which its caller knows it."""

    scope: str | None
    resource: str
    request: Request


Ask = Sequence[Named]
"""What must pass together."""


def ask(body: Mapping[str, Any], scopes: Collection[str]) -> Ask:
    """What one check asks for: what `also` leaves out is as in the check itself."""
    first = {"tokens": 1, **body}
    defaults = {"resource": first["resource"], "tokens": first["tokens"]}
    return [
        named({**defaults, **one}, scopes, where)
        for where, one in [("", first), *_numbered("also", body.get("also", ()))]
    ]


def named(one: Mapping[str, Any], scopes: Collection[str], where: str = "") -> Named:
    """One bucket, and how much of it."""
    scope, resource = one.get("scope"), str(one["resource"])
    entity_id = entity(scope, one.get("identifier"), scopes, where)
    drawn = resource if scope is None else f"{resource}@{scope}"
    return Named(scope, resource, Request(entity_id, drawn, one.get("tokens", 1)))


def entity(
    scope: str | None, identifier: str | None, scopes: Collection[str], where: str = ""
) -> str:
    """The entity that an identifier of this scope stands for."""
    if scope is not None and scope not in scopes:
        raise ValidationError(
            f"{where}scope is {scope!r}: the scopes here are {', '.join(sorted(scopes))}"
        )
    if scope == GLOBAL:
        if identifier is not None:
            raise ValidationError(
                f"{where}identifier is {identifier!r}: the scope {GLOBAL!r} has none"
            )
        return GLOBAL
    if identifier is None:
        raise ValidationError(f"{where}identifier is missing: only the scope {GLOBAL!r} has none")
    if scope is None:
        return identifier
    if scope == IP:
        return f"{IP}:{_address(identifier, where)}"
    if scope == API_KEY:
        # A key is a secret: who reads the table or a log of ours must not learn it.
        return f"{API_KEY}:{hashlib.sha256(identifier.encode()).hexdigest()[:DIGEST]}"
    return f"{scope}:{identifier}"


def known(entity_id: str, drawn: str, scopes: Collection[str]) -> Named:
    """A bucket by the names that callers know, from what it is called in the table."""
    resource, _, scope = drawn.rpartition("@")
    if scope in scopes and (entity_id == scope == GLOBAL or entity_id.startswith(f"{scope}:")):
        return Named(scope, resource, Request(entity_id, drawn, 1))
    return Named(None, drawn, Request(entity_id, drawn, 1))


def _address(text: str, where: str) -> str:
    found = by_ip(Incoming("", "", address=text))
    if found == ANONYMOUS:
        raise ValidationError(f"{where}identifier is {text!r}: the scope {IP!r} has IP addresses")
    return found


def _numbered(name: str, several: Sequence[Any]) -> list[tuple[str, Any]]:
    return [(f"{name}.{position}.", one) for position, one in enumerate(several)]
