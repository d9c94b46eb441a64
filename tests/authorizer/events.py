"""What API Gateway asks an authorizer, as its documentation has it."""

from __future__ import annotations

ADDRESS = "203.0.113.7"
METHOD_ARN = "arn:aws:execute-api:us-east-1:123456789012:abcdef123/prod/GET/items/7"
ROUTE_ARN = "arn:aws:execute-api:us-east-1:123456789012:abcdef123/$default/GET/items/7"


def rest(headers=None, *, address=ADDRESS, arn=METHOD_ARN, api_key_id=None):
    """A REST API's REQUEST authorizer."""
    given = headers or {}
    return {
        "type": "REQUEST",
        "methodArn": arn,
        "resource": "/items/{id}",
        "path": "/items/7",
        "httpMethod": "GET",
        "headers": given or None,
        "multiValueHeaders": {name: [value] for name, value in given.items()} or None,
        "queryStringParameters": None,
        "multiValueQueryStringParameters": None,
        "pathParameters": {"id": "7"},
        "stageVariables": None,
        "requestContext": {
            "path": "/prod/items/7",
            "accountId": "123456789012",
            "resourceId": "05c7jb",
            "stage": "prod",
            "requestId": "e63f7c9a",
            "identity": {"apiKeyId": api_key_id, "sourceIp": address},
            "resourcePath": "/items/{id}",
            "httpMethod": "GET",
            "apiId": "abcdef123",
        },
    }


def http(headers=None, *, address=ADDRESS):
    """An HTTP API's REQUEST authorizer, payload 2.0."""
    return {
        "version": "2.0",
        "type": "REQUEST",
        "routeArn": ROUTE_ARN,
        "identitySource": None,
        "routeKey": "GET /items/{id}",
        "rawPath": "/items/7",
        "rawQueryString": "",
        "cookies": [],
        "headers": {name.lower(): value for name, value in (headers or {}).items()},
        "queryStringParameters": {},
        "requestContext": {
            "accountId": "123456789012",
            "apiId": "abcdef123",
            "domainName": "abcdef123.execute-api.us-east-1.amazonaws.com",
            "http": {
                "method": "GET",
                "path": "/items/7",
                "protocol": "HTTP/1.1",
                "sourceIp": address,
                "userAgent": "agent",
            },
            "requestId": "e63f7c9a",
            "routeKey": "GET /items/{id}",
            "stage": "$default",
        },
        "pathParameters": {"id": "7"},
        "stageVariables": None,
    }


def allowed(answer):
    """Whether an answer of either form lets the request pass."""
    if "isAuthorized" in answer:
        return answer["isAuthorized"]
    (statement,) = answer["policyDocument"]["Statement"]
    return statement["Effect"] == "Allow"
