"""Lambda events as each source sends them, cut down to what is read."""

from __future__ import annotations

import json

ADDRESS = "203.0.113.7"


def rest(path="/", method="GET", headers=None, claims=None):
    """API Gateway, REST API."""
    given = headers or {}
    return {
        "resource": path,
        "path": path,
        "httpMethod": method,
        "headers": given,
        "multiValueHeaders": {name: [value] for name, value in given.items()},
        "queryStringParameters": None,
        "multiValueQueryStringParameters": None,
        "pathParameters": None,
        "stageVariables": None,
        "requestContext": {
            "httpMethod": method,
            "stage": "prod",
            "identity": {"sourceIp": ADDRESS},
            "authorizer": {"claims": claims} if claims else None,
        },
        "body": None,
        "isBase64Encoded": False,
    }


def http(path="/", method="GET", headers=None, claims=None):
    """API Gateway, HTTP API, payload 2.0."""
    context = {
        "stage": "$default",
        "http": {"method": method, "path": path, "sourceIp": ADDRESS},
    }
    if claims:
        context["authorizer"] = {"jwt": {"claims": claims, "scopes": None}}
    return {
        "version": "2.0",
        "routeKey": "$default",
        "rawPath": path,
        "rawQueryString": "",
        "headers": headers or {},
        "requestContext": context,
        "isBase64Encoded": False,
    }


def url(path="/", method="GET", headers=None, claims=None):
    """A function URL: the same payload, and what a Lambda authorizer would hand on."""
    event = http(path, method, headers)
    if claims:
        event["requestContext"]["authorizer"] = {"lambda": claims}
    return event


def alb(path="/", method="GET", headers=None, claims=None):
    """A load balancer. It verifies no tokens; it appends the address it saw."""
    return {
        "requestContext": {"elb": {"targetGroupArn": "arn:aws:elasticloadbalancing:::targetgroup"}},
        "httpMethod": method,
        "path": path,
        "queryStringParameters": {},
        "headers": {**(headers or {}), "x-forwarded-for": f"198.51.100.1, {ADDRESS}"},
        "body": "",
        "isBase64Encoded": False,
    }


def alb_lists(path="/", method="GET", headers=None, claims=None):
    """A load balancer whose target group has multi-value headers on."""
    event = alb(path, method, headers)
    event["multiValueHeaders"] = {n: [v] for n, v in event.pop("headers").items()}
    event["multiValueQueryStringParameters"] = event.pop("queryStringParameters")
    return event


def header(answer, name):
    """A header of an answer, in either form."""
    several = answer.get("multiValueHeaders") or {}
    found = {n.lower(): v[-1] for n, v in several.items()}
    found |= {n.lower(): v for n, v in (answer.get("headers") or {}).items()}
    return found.get(name.lower())


def body(answer):
    return json.loads(answer["body"])
