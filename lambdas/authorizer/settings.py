"""The authorizer's one setting: JSON that the construct wrote, made into the client's policy."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from authorizer.tokens import TokenSettings
from headgate.errors import ValidationError
from headgate.middleware import Incoming, Policy, Scope, by_claim, by_header, by_ip, everyone
from headgate.middleware.keys import ANONYMOUS
from headgate.schema import checked_entity

Find = Callable[[Incoming], str]

# 128 bits: nobody finds a second key with the digest of another's.
DIGITS = 32


class Unauthorized(Exception):
    """A request without what every request has to have. API Gateway reads the message."""

    def __init__(self) -> None:
        super().__init__("Unauthorized")


@dataclass(frozen=True, slots=True)
class Settings:
    """What is limited, and whose tokens count."""

    policy: Policy
    token: TokenSettings | None

    @classmethod
    def parse(cls, text: str) -> Settings:
        """From the environment variable HEADGATE_AUTHORIZER."""
        given = json.loads(text)
        first, *others = (_scope(scope) for scope in given["scopes"])
        policy = Policy(
            **first,
            also=[Scope(**scope) for scope in others],
            on_unavailable=given.get("on_unavailable"),
        )
        token = given.get("token")
        return cls(policy, None if token is None else _token(token))


def digest(value: str) -> str:
    """What stands for a key in the table: it can be told from the key, and not the key from it."""
    return f"key:{hashlib.sha256(value.encode()).hexdigest()[:DIGITS]}"


def _scope(given: Mapping[str, Any]) -> dict[str, Any]:
    scope = {name: given[name] for name in ("resource", "cost", "name") if given.get(name)}
    return {**scope, "key": _key(given["key"])}


def _token(given: Mapping[str, Any]) -> TokenSettings:
    several = {name: tuple(given.get(name, ())) for name in ("audience", "pass_on")}
    return TokenSettings(**{**given, **several})


def _key(given: Mapping[str, Any]) -> Find:
    match given["by"]:
        case "ip":
            return by_ip
        case "everyone":
            return everyone
        case "header":
            find = by_header(given["name"], missing="")
        case "claim":
            find = by_claim(given["name"], missing="")
        case "api_key_id":
            find = _api_key_id
        case other:
            raise ValueError(f"there is no way to limit by {other!r}")
    return _named(find, hashed=given.get("hashed", False), required=given.get("required", False))


def _api_key_id(request: Incoming) -> str:
    """What API Gateway calls the key of a usage plan: an id, and no secret."""
    identity = request.raw["requestContext"].get("identity") or {}
    return str(identity.get("apiKeyId") or "")


def _named(find: Find, *, hashed: bool, required: bool) -> Find:
    """Makes an entity's id of what was found, or of nothing."""

    def key(request: Incoming) -> str:
        found = find(request)
        if not found:
            if required:
                raise Unauthorized
            return ANONYMOUS
        return digest(found) if hashed or not _fits(found) else found

    return key


def _fits(value: str) -> bool:
    try:
        checked_entity(value)
    except ValidationError:
        return False
    return True
