"""The function in this process, over a limiter whose table can be cut off."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest

from api import handler as entry
from api.service import Service
from api.signing import Signer
from headgate import Limit
from tests.behaviour.backends import simulator

SCOPES = ("user", "ip", "api_key", "global")
CONTEXT = SimpleNamespace(
    function_name="api",
    memory_limit_in_mb=512,
    invoked_function_arn="arn:aws:lambda:us-east-1:000000000000:function:api",
    aws_request_id="request-1",
)
KEYS = {"AWSCURRENT": "k" * 64}


class Api:
    """Sends requests as an HTTP API does."""

    def __init__(self, backend, adapter):
        self.backend = backend
        self.adapter = adapter
        self.limiter = adapter.limiter
        self.keys = dict(KEYS)
        self.signer = Signer(self.keys.get)

    def send(self, method, path, body=None, *, query=None, parameters=None):
        event = {
            "version": "2.0",
            "routeKey": f"{method} {path}",
            "rawPath": path,
            "rawQueryString": "",
            "headers": {"content-type": "application/json"},
            "queryStringParameters": query or {},
            "pathParameters": parameters or {},
            "requestContext": {
                "stage": "$default",
                "http": {"method": method, "path": path, "sourceIp": "203.0.113.7"},
            },
            "body": body,
            "isBase64Encoded": False,
        }
        answer = entry.handler(event, CONTEXT)
        headers = answer.get("headers", {})
        return SimpleNamespace(
            status=answer["statusCode"],
            headers={name.lower(): value for name, value in headers.items()},
            json=json.loads(answer["body"]),
        )

    def post(self, operation, **body):
        return self.send("POST", f"/v1/ratelimit/{operation}", json.dumps(body))

    def check(self, identifier="u1", resource="api", **body):
        who = {} if identifier is None else {"identifier": identifier}
        return self.post("check", **who, resource=resource, **body)

    def status(self, identifier, resource, **query):
        path = f"/v1/ratelimit/status/{identifier}/{resource}"
        parameters = {"identifier": identifier, "resource": resource}
        return self.send("GET", path, query=query, parameters=parameters)

    def health(self):
        return self.send("GET", "/health")

    def available(self, entity, resource="api"):
        return self.limiter.available(entity, resource)


@pytest.fixture
def make_api(request, monkeypatch):
    """An API over a limiter with these options."""
    with simulator(request) as backend:

        def make(**options):
            adapter = backend.limiter(**options)
            # By the day: no time that a test takes gives anything back.
            adapter.set_limits([Limit.per_day("calls", 3)], resource="api")
            api = Api(backend, adapter)
            service = Service(adapter.limiter, frozenset(SCOPES), api.signer)
            monkeypatch.setattr(entry, "service", lambda: service)
            return api

        yield make
        backend.close()


@pytest.fixture
def api(make_api):
    return make_api()
