"""The OpenAPI document, made of the schemas that requests are checked by.

python -m api.document > docs/openapi.json
"""

from __future__ import annotations

import json
import sys
from typing import Any

from api import schemas

DESCRIPTIONS = {
    "200": "It passes, or it is done.",
    "400": "The request cannot be right: the message shows the value and what is allowed.",
    "403": "The lease was not given out here, was altered, has expired or was used before.",
    "429": "A limit is short, or too many came at once: `Retry-After` says when to come again.",
    "503": "The table does not answer and the policy is to block, or the service is not set up.",
}


def _headers(**described: str) -> dict[str, Any]:
    return {
        name.replace("_", "-"): {"description": text, "schema": {"type": "string"}}
        for name, text in described.items()
    }


STANDING = _headers(
    RateLimit="for each limit what remains and when it is full (the IETF draft's field)",
    RateLimit_Policy="for each limit its capacity and window (the IETF draft's field)",
    X_RateLimit_Limit="the capacity of the most restrictive limit",
    X_RateLimit_Remaining="what it has left",
    X_RateLimit_Reset="when it is full again, in seconds since the epoch",
    X_RateLimit_Most_Restrictive="its name and scope",
    X_RateLimit_Degraded="true if the table could not be asked",
    X_RateLimit_Degraded_Reason="and why",
)
REFUSED = STANDING | _headers(
    Retry_After="whole seconds, rounded up; left out if waiting does not help",
    X_RateLimit_First_Blocked="the first limit, in order of the request, that said no",
    X_RateLimit_Scope="the scopes that said no",
)
LATER = _headers(
    Retry_After="whole seconds",
    X_RateLimit_Degraded="true",
    X_RateLimit_Degraded_Reason="why",
)


def _json(*names: str) -> dict[str, Any]:
    refs = [{"$ref": f"#/components/schemas/{name}"} for name in names]
    return {"application/json": {"schema": refs[0] if len(refs) == 1 else {"anyOf": refs}}}


def _answer(code: str, *names: str, **more: Any) -> dict[str, Any]:
    return {code: {"description": DESCRIPTIONS[code], "content": _json(*names), **more}}


def _operation(name: str, summary: str, *answers: dict[str, Any], **more: Any) -> dict[str, Any]:
    responses = {code: answer for each in answers for code, answer in each.items()}
    return {"operationId": name, "summary": summary, "responses": responses, **more}


def _takes(kind: str) -> dict[str, Any]:
    return {"requestBody": {"required": True, "content": _json(kind)}}


def _parameter(name: str, where: str, schema: dict[str, Any]) -> dict[str, Any]:
    return {
        "name": name,
        "in": where,
        "required": where == "path",
        "description": schema["description"],
        "schema": schema,
    }


BAD = _answer("400", "Error")
DOWN = _answer("503", "Error", headers=LATER)
CHECKED = (
    _answer("200", "Checked", headers=STANDING),
    BAD,
    _answer("429", "Checked", headers=REFUSED),
    DOWN,
)
SETTLED = (
    _answer("200", "Settled", headers=STANDING),
    BAD,
    _answer("403", "Error"),
    _answer("429", "Error", headers=REFUSED),
    DOWN,
)

PATHS: dict[str, Any] = {
    "/v1/ratelimit/check": {
        "post": _operation(
            "check", "Take tokens, or see whether they are there", *CHECKED, **_takes("Check")
        )
    },
    "/v1/ratelimit/batch": {
        "post": _operation(
            "batch",
            "Several checks at once, each on its own or all together",
            _answer("200", "Batched", "Checked", headers=STANDING),
            *CHECKED[1:],
            **_takes("Batch"),
        )
    },
    "/v1/ratelimit/lease/adjust": {
        "post": _operation(
            "adjust", "Correct what a lease took, once", *SETTLED, **_takes("Adjust")
        )
    },
    "/v1/ratelimit/lease/release": {
        "post": _operation(
            "release", "Give back what a lease took, once", *SETTLED, **_takes("Release")
        )
    },
    "/v1/ratelimit/status/{identifier}/{resource}": {
        "get": _operation(
            "status",
            "Where a bucket stands",
            _answer("200", "Status", headers=STANDING),
            BAD,
            DOWN,
            parameters=[
                _parameter("identifier", "path", schemas.IDENTIFIER),
                _parameter("resource", "path", schemas.RESOURCE),
                _parameter("scope", "query", schemas.SCOPE),
            ],
        )
    },
    "/health": {
        "get": _operation(
            "health",
            "Whether checks are answered, and from what",
            _answer("200", "Health"),
            _answer("503", "Health", "Error"),
        )
    },
}

DOCUMENT: dict[str, Any] = {
    "openapi": "3.1.0",
    "info": {
        "title": "Headgate",
        "version": "1",
        "description": "Rate limits over HTTP. Requests are signed by AWS's Signature Version 4 "
        "unless the deployment chose another way.",
    },
    "security": [{"sigv4": []}],
    "paths": PATHS,
    "components": {
        "schemas": schemas.COMPONENTS,
        "securitySchemes": {
            "sigv4": {
                "type": "apiKey",
                "name": "Authorization",
                "in": "header",
                "x-amazon-apigateway-authtype": "awsSigv4",
            }
        },
    },
}


def text() -> str:
    """The document as it is checked in."""
    return json.dumps(DOCUMENT, indent=2) + "\n"


if __name__ == "__main__":
    sys.stdout.write(text())
