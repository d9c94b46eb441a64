"""What callers send and what they are told, as JSON Schema: checked here, published in the
OpenAPI document. Each description says what is allowed, since errors quote it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

import fastjsonschema

from headgate.errors import ValidationError

MAX_BODY = 65_536
MAX_REQUESTS = 25
MAX_LEASE_SECONDS = 86_400
MOST = 10**12

Schema = dict[str, Any]


def _object(*required: str, **properties: Schema) -> Schema:
    return {
        "type": "object",
        "required": list(required),
        "additionalProperties": False,
        "properties": properties,
    }


def _ref(name: str) -> Schema:
    return {"$ref": f"#/components/schemas/{name}"}


def _number(description: str, least: int = 0, most: int = MOST) -> Schema:
    return {"type": "integer", "minimum": least, "maximum": most, "description": description}


def _maybe(schema: Schema, description: str) -> Schema:
    kind = schema["type"]
    return {**schema, "type": [kind, "null"], "description": description}


# No `#`, which separates the parts of a key, and no control characters.
_ID = r"^[^#\u0000-\u001f\u007f-\u009f]+$"
_LIMIT = "^[A-Za-z][A-Za-z0-9_]{0,31}$"
_TEXT: Schema = {"type": "string"}
_FLAG: Schema = {"type": "boolean"}
_SECONDS: Schema = {"type": "number", "minimum": 0}

IDENTIFIER: Schema = {
    "type": "string",
    "minLength": 1,
    "maxLength": 256,
    "pattern": _ID,
    "description": "who: 1 to 256 bytes of text without '#' or control characters",
    "examples": ["user-42"],
}
RESOURCE: Schema = {
    "type": "string",
    "minLength": 1,
    "maxLength": 128,
    "pattern": _ID,
    "description": "of what: 1 to 128 bytes of text without '#' or control characters",
    "examples": ["search"],
}
SCOPE: Schema = {
    "type": "string",
    "pattern": "^[a-z][a-z0-9_]{0,31}$",
    "description": "what kind of identifier it is, such as user, ip, api_key or global: one of "
    "the scopes of this deployment; by default the identifier names an entity itself",
    "examples": ["user"],
}
TOKENS: Schema = {
    "description": "how much: a number from 1 (of every limit), a number from 1 for each limit by "
    'its name, such as {"rpm": 1, "tpm": 500}, or the name of an operation that the resource has '
    "costs for; by default 1",
    "anyOf": [
        {"type": "integer", "minimum": 1, "maximum": MOST},
        {"type": "string", "pattern": "^[A-Za-z][A-Za-z0-9._:/-]{0,63}$"},
        {
            "type": "object",
            "minProperties": 1,
            "maxProperties": 16,
            "propertyNames": {"pattern": _LIMIT},
            "additionalProperties": {"type": "integer", "minimum": 1, "maximum": MOST},
        },
    ],
    "examples": [1, {"rpm": 1, "tpm": 500}, "export"],
}
DRY_RUN: Schema = {**_FLAG, "description": "true to look and take nothing"}
LEASE_SECONDS = _number(
    "to be given a lease, by which to correct or give back: for how many seconds, "
    f"1 to {MAX_LEASE_SECONDS}",
    1,
    MAX_LEASE_SECONDS,
)
LEASE: Schema = {
    "type": "string",
    "minLength": 1,
    "maxLength": 32_768,
    "description": "a lease as it was given out",
}
DIFFERENCES: Schema = {
    "type": "object",
    "minProperties": 1,
    "maxProperties": 16,
    "propertyNames": {"pattern": _LIMIT},
    "additionalProperties": {"type": "integer", "minimum": -MOST, "maximum": MOST},
    "description": "by how much to correct each limit: whole numbers, more if positive, less if "
    "negative",
    "examples": [{"tpm": -120}],
}
AMOUNTS: Schema = {
    "type": "object",
    "minProperties": 1,
    "maxProperties": 16,
    "propertyNames": {"pattern": _LIMIT},
    "additionalProperties": {"type": "integer", "minimum": 1, "maximum": MOST},
    "description": "how much of each limit to give back, whole numbers from 1; by default all",
    "examples": [{"tpm": 120}],
}

_WHOSE = {"identifier": IDENTIFIER, "scope": SCOPE, "resource": RESOURCE, "tokens": TOKENS}
_ALSO: Schema = {
    "type": "array",
    "maxItems": MAX_REQUESTS - 1,
    "items": _ref("Also"),
    "description": f"what must pass as well, all or nothing: up to {MAX_REQUESTS - 1} more",
}

REQUESTS: dict[str, Schema] = {
    "Also": _object(**_WHOSE),
    "Check": _object(
        "resource", **_WHOSE, also=_ALSO, dry_run=DRY_RUN, lease_seconds=LEASE_SECONDS
    ),
    "Batch": _object(
        "requests",
        requests={
            "type": "array",
            "minItems": 1,
            "maxItems": MAX_REQUESTS,
            "items": _ref("BatchRequest"),
            "description": f"1 to {MAX_REQUESTS} requests",
        },
        mode={
            "type": "string",
            "enum": ["each", "all"],
            "description": "each: every request on its own; all: all of them or none",
        },
        dry_run=DRY_RUN,
        lease_seconds=LEASE_SECONDS,
    ),
    "BatchRequest": _object("resource", **_WHOSE, also=_ALSO),
    "Adjust": _object("lease", "tokens", lease=LEASE, tokens=DIFFERENCES),
    "Release": _object("lease", lease=LEASE, tokens=AMOUNTS),
}

_NAMED = {
    "scope": _maybe(_TEXT, "the scope; null if the identifier was given without one"),
    "resource": _TEXT,
    "limit": _maybe(_TEXT, "the limit's name; null if no limit was the reason"),
}
_STANDING = {
    "capacity": _maybe({"type": "integer"}, "the most that it holds"),
    "remaining": _maybe({"type": "integer"}, "whole tokens that are left; negative in debt"),
    "retry_after_seconds": _maybe(_SECONDS, "when this would pass: 0 for now, null for never"),
    "reset_at": _maybe({"type": "integer"}, "when it is full again, in seconds since the epoch"),
}
_TAKEN = {
    "allowed": _FLAG,
    "dry_run": _FLAG,
    "degraded": {**_FLAG, "description": "whether the table could not be asked"},
    "reason": _maybe(_TEXT, "why it is degraded, or refused if not by a limit"),
    **_STANDING,
    "most_restrictive": _maybe(
        _object("scope", "resource", "limit", **_NAMED), "the limit that the above is about"
    ),
    "first_blocked": _maybe(
        _object("scope", "resource", "limit", **_NAMED), "the first, in order, that said no"
    ),
    "blocked": {"type": "array", "items": _ref("Limit"), "description": "all that said no"},
    "limits": {"type": "array", "items": _ref("Standing")},
}
_LEASED = {
    "lease": _maybe(_TEXT, "the lease that was asked for"),
    "lease_expires_at": _maybe({"type": "integer"}, "in seconds since the epoch"),
}

ANSWERS: dict[str, Schema] = {
    "Limit": _object(*_NAMED, **_NAMED),
    "Standing": _object(*_NAMED, *_STANDING, **_NAMED, **_STANDING),
    "Checked": _object(*_TAKEN, *_LEASED, **_TAKEN, **_LEASED),
    "Batched": _object(
        "allowed",
        "results",
        allowed={**_FLAG, "description": "whether all of them passed"},
        results={"type": "array", "items": _ref("BatchResult")},
    ),
    "BatchResult": _object(
        "status",
        "answer",
        status={"type": "integer", "description": "the status that it would have had alone"},
        answer={"anyOf": [_ref("Checked"), _ref("Error")]},
    ),
    "Settled": _object(
        "done",
        "held",
        "limits",
        *_LEASED,
        done={**_FLAG, "description": "false if this was done before, by the same request"},
        held={
            "type": "object",
            "additionalProperties": {"type": "integer"},
            "description": "what the lease holds now, by limit",
        },
        limits={"type": "array", "items": _ref("Standing")},
        **_LEASED,
    ),
    "Status": _object(
        "mode",
        "limits",
        mode={"type": "string", "enum": ["normal", "disabled", "bypass"]},
        limits={"type": "array", "items": _ref("Standing")},
    ),
    "Health": _object(
        "status",
        "breaker",
        "reason",
        status={"type": "string", "enum": ["healthy", "degraded", "unhealthy"]},
        breaker={"type": "string", "enum": ["closed", "half_open", "open"]},
        reason=_maybe(_TEXT, "what is wrong"),
    ),
    "Error": _object(
        "error",
        "message",
        error={"type": "string", "description": "a word for programs"},
        message={"type": "string", "description": "a sentence for people"},
    ),
}

COMPONENTS = REQUESTS | ANSWERS


@cache
def _checker(name: str) -> Callable[[Any], Any]:
    definition = {**_ref(name), "components": {"schemas": COMPONENTS}}
    check: Callable[[Any], Any] = fastjsonschema.compile(definition, use_default=False)
    return check


def parse(name: str, body: str | bytes | None) -> Mapping[str, Any]:
    """The body of a request of this kind, checked."""
    text = body or ""
    size = len(text.encode(errors="surrogatepass") if isinstance(text, str) else text)
    if size > MAX_BODY:
        raise ValidationError(f"the body has {size} bytes: at most {MAX_BODY} are allowed")
    try:
        data = json.loads(text, parse_float=_parsed, parse_constant=_refused)
    except (ValueError, RecursionError) as error:
        raise ValidationError(f"the body is not JSON: {error}") from error
    try:
        checked: Mapping[str, Any] = _checker(name)(data)
    except fastjsonschema.JsonSchemaValueException as error:
        raise ValidationError(_sentence(error)) from error
    return checked


def _sentence(error: fastjsonschema.JsonSchemaValueException) -> str:
    """What is wrong: the value, and what is allowed."""
    where = ".".join(str(step) for step in error.path[1:]) or "the body"
    shown = json.dumps(error.value)
    given = shown if len(shown) <= 200 else f"{shown[:200]}..."
    allowed = (error.definition or {}).get("description")
    if allowed:
        return f"{where} is {given}: allowed is {allowed}"
    rule = str(error.message).partition(" ")[2]
    return f"{where} {rule}: {given}"


def _parsed(text: str) -> int | float:
    """JSON has one kind of number: 2.0 is as whole as 2."""
    value = float(text)
    return int(value) if value.is_integer() and abs(value) <= MOST else value


def _refused(text: str) -> Any:
    raise ValueError(f"{text} is not a number of JSON")
