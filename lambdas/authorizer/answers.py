"""What API Gateway is told: a policy for a REST API, a plain yes or no for an HTTP API.

The context goes with the answer: to the backend if the request passes, into the gateway response
if it does not (REST). Its values are text, and its names are what templates can refer to.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from authorizer.settings import Unauthorized

# Headers of the answer -> names in the context. The construct's gateway responses use them.
NAMES = {
    "Retry-After": "retryAfter",
    "RateLimit-Policy": "policy",
    "RateLimit": "standing",
    "X-RateLimit-Limit": "limit",
    "X-RateLimit-Remaining": "remaining",
    "X-RateLimit-Reset": "reset",
    "X-RateLimit-Scope": "scope",
    "X-RateLimit-Degraded": "degraded",
    "X-RateLimit-Degraded-Reason": "degradedReason",
}

# Shown in access logs: nobody's id.
PRINCIPAL = "headgate"

Answer = dict[str, Any]


def context(headers: Mapping[str, str], *, error: str | None = None) -> dict[str, str]:
    """The headers under the names of the context, and what went wrong if something did."""
    told = {NAMES[name]: value for name, value in headers.items() if name in NAMES}
    return told if error is None else {**told, "error": error}


def answer(event: Mapping[str, Any], *, allow: bool, told: Mapping[str, str]) -> Answer:
    """Yes or no, in the form that the event asks for."""
    if not _is_rest(event):
        return {"isAuthorized": allow, "context": dict(told)}
    statement = {
        "Action": "execute-api:Invoke",
        "Effect": "Allow" if allow else "Deny",
        "Resource": _like(event["methodArn"]),
    }
    return {
        "principalId": PRINCIPAL,
        "policyDocument": {"Version": "2012-10-17", "Statement": [statement]},
        "context": dict(told),
    }


def unauthorized(event: Mapping[str, Any]) -> Answer:
    """401 of a REST API, for which an error of this name is raised; 403 of an HTTP API."""
    if _is_rest(event):
        raise Unauthorized
    return answer(event, allow=False, told={"error": "unauthorized"})


def _is_rest(event: Mapping[str, Any]) -> bool:
    return "methodArn" in event


def _like(arn: str) -> str:
    """This stage and this method of this API, whatever the path: what a caller wrote into it could
    be taken for a wildcard or a variable of the policy. It is the answer to one request, since
    answers are not cached.
    """
    api, stage, method = arn.split("/", 3)[:3]
    return f"{api}/{stage}/{method}/*"
