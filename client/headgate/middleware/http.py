"""A request and its answer as policies see them, whichever framework they came through."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Incoming:
    """A request. Names of headers are in lower case.

    `address` is the caller's, as far as the server can vouch for it. `claims` are those of a token
    that was verified before: by API Gateway's authorizer, or by an ASGI middleware that put them
    into the scope's state. `raw` is the ASGI scope or the Lambda event.
    """

    method: str
    path: str
    headers: Mapping[str, str] = field(default_factory=dict)
    address: str | None = None
    claims: Mapping[str, Any] = field(default_factory=dict)
    raw: Any = None


@dataclass(frozen=True, slots=True)
class Outgoing:
    """An answer. Names of headers are in lower case."""

    status: int
    headers: Mapping[str, str] = field(default_factory=dict)
    body: Any = b""

    def json(self) -> Any:
        """The body as data. A handler may have given data to begin with."""
        return (
            json.loads(self.body) if isinstance(self.body, str | bytes | bytearray) else self.body
        )


def is_http(event: object) -> bool:
    """Whether a Lambda event is a request: of a REST or HTTP API, a load balancer or a URL."""
    if not isinstance(event, Mapping):
        return False
    context = event.get("requestContext")
    return isinstance(context, Mapping) and ("httpMethod" in event or "http" in context)


def from_event(event: Any) -> Incoming:
    """A Lambda event, whatever sent it. One that is no request has nothing but `raw`."""
    if not is_http(event):
        return Incoming("", "", raw=event)
    context = event["requestContext"]
    http = context.get("http") or {}
    headers = event_headers(event)
    return Incoming(
        method=http.get("method") or event["httpMethod"],
        path=event.get("rawPath") or event.get("path") or "/",
        headers=headers,
        address=_address(context, http, headers),
        claims=_claims(context.get("authorizer") or {}),
        raw=event,
    )


def event_headers(message: Mapping[str, Any]) -> dict[str, str]:
    """The headers of an event or of a handler's answer, of which some come as lists."""
    several = message.get("multiValueHeaders") or {}
    found = {str(name).lower(): ", ".join(map(str, values)) for name, values in several.items()}
    single = message.get("headers") or {}
    return found | {str(name).lower(): str(value) for name, value in single.items()}


def event_body(message: Mapping[str, Any]) -> Any:
    """The body of a handler's answer."""
    body = message.get("body")
    if body is None:
        return b""
    return base64.b64decode(body) if message.get("isBase64Encoded") else body


def _address(
    context: Mapping[str, Any], http: Mapping[str, Any], headers: Mapping[str, str]
) -> str | None:
    if "elb" in context:
        # The load balancer appends the address it saw; what stands before it is hearsay.
        return headers.get("x-forwarded-for", "").rpartition(",")[2].strip() or None
    identity = context.get("identity") or {}
    address = http.get("sourceIp") or identity.get("sourceIp")
    return str(address) if address else None


def _claims(authorizer: Mapping[str, Any]) -> dict[str, Any]:
    """Verified claims: of a JWT or Cognito authorizer, or what a Lambda authorizer handed on."""
    nested = (authorizer.get("jwt") or {}).get("claims") or authorizer.get("claims")
    return dict(nested or authorizer.get("lambda") or authorizer)
