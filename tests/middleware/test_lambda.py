"""Powertools' event handler and plain handlers, fed what each source of events sends."""

from __future__ import annotations

import base64
import json
import subprocess
import sys
from types import SimpleNamespace

import pytest
from aws_lambda_powertools.event_handler import (
    ALBResolver,
    APIGatewayHttpResolver,
    APIGatewayRestResolver,
    LambdaFunctionUrlResolver,
    Response,
)
from aws_lambda_powertools.event_handler.exceptions import BadRequestError, InternalServerError

from headgate import RateLimiterUnavailable, RateLimitExceeded
from headgate.middleware import Policy, by_claim, by_header, by_ip
from headgate.middleware.handler import limited
from headgate.middleware.http import from_event
from headgate.middleware.powertools import RateLimit
from tests.middleware import events

CONTEXT = SimpleNamespace(aws_request_id="1", function_name="f")
SOURCES = [events.rest, events.http, events.url, events.alb, events.alb_lists]
KEY = {"x-api-key": "user-1"}


def policy(**changes):
    plain = {"key": by_header("x-api-key"), "resource": "api", "cost": {"calls": 1}}
    return Policy(**plain | changes)


def powertools(source, limiter, chosen):
    """An application of the resolver that the source calls for."""
    kinds = {
        events.rest: APIGatewayRestResolver,
        events.http: APIGatewayHttpResolver,
        events.url: LambdaFunctionUrlResolver,
    }
    app = kinds.get(source, ALBResolver)()
    app.use([RateLimit(limiter, chosen)])

    @app.get("/hello")
    def hello():
        return {"used": 120}

    @app.get("/text")
    def text():
        return Response(200, "application/json", '{"used": 120}')

    @app.get("/bad")
    def bad():
        raise BadRequestError("no")

    @app.get("/unwell")
    def unwell():
        raise InternalServerError("no")

    @app.get("/broken")
    def broken():
        raise RuntimeError("as the test wants it")

    return app.resolve


def plain(source, limiter, chosen):
    @limited(limiter, chosen)
    def handler(event, context):
        path = event.get("rawPath") or event.get("path")
        if path == "/broken":
            raise RuntimeError("as the test wants it")
        if path == "/text":
            encoded = base64.b64encode(b'{"used": 120}').decode()
            return {"statusCode": 200, "body": encoded, "isBase64Encoded": True}
        return {"statusCode": 200, "headers": {"x-own": "1"}, "body": json.dumps({"used": 120})}

    return handler


@pytest.mark.parametrize("make", [powertools, plain])
@pytest.mark.parametrize("source", SOURCES)
def test_requests_pass_with_headers_until_the_limit_and_then_get_429(limiter, make, source):
    handler = make(source, limiter, policy())
    answers = [handler(source("/hello", headers=KEY), CONTEXT) for _ in range(4)]
    assert [answer["statusCode"] for answer in answers] == [200, 200, 200, 429]
    left = [events.header(answer, "X-RateLimit-Remaining") for answer in answers]
    assert left == ["2", "1", "0", "0"]
    assert int(events.header(answers[3], "Retry-After")) > 0
    assert events.header(answers[3], "Content-Type") == "application/json"
    assert events.body(answers[3])["scope"] == "api"
    assert handler(source("/hello", headers={"x-api-key": "b"}), CONTEXT)["statusCode"] == 200
    if source is events.alb_lists:
        assert "Retry-After" in answers[3]["multiValueHeaders"]


@pytest.mark.parametrize("make", [powertools, plain])
@pytest.mark.parametrize("path", ["/hello", "/text"])
def test_the_estimate_is_corrected_by_what_the_answer_says(limiter, make, path):
    chosen = policy(
        cost={"calls": 1, "tokens": 200}, used=lambda r, a: {"tokens": a.json()["used"]}
    )
    answer = make(events.http, limiter, chosen)(events.http(path, headers=KEY), CONTEXT)
    assert answer["statusCode"] == 200
    assert limiter.available("user-1", "api") == {"calls": 2, "tokens": 880}


@pytest.mark.parametrize("source", [events.rest, events.http, events.url])
def test_a_verified_claim_or_the_address_names_the_caller(limiter, source):
    event = source("/hello", claims={"sub": "subject-1"})
    plain(source, limiter, policy(key=by_claim("sub")))(event, CONTEXT)
    assert limiter.available("subject-1", "api")["calls"] == 2
    plain(source, limiter, policy(key=by_ip))(event, CONTEXT)
    assert limiter.available(events.ADDRESS, "api")["calls"] == 2


def test_of_a_load_balancers_addresses_only_the_one_that_it_saw_counts():
    assert from_event(events.alb("/hello")).address == events.ADDRESS
    assert from_event(events.alb_lists("/hello")).address == events.ADDRESS


def test_an_error_that_is_an_answer_keeps_the_tokens_and_a_failure_gives_them_back(limiter):
    handler = powertools(events.http, limiter, policy())
    assert handler(events.http("/unwell", headers=KEY), CONTEXT)["statusCode"] == 500
    with pytest.raises(RuntimeError):
        handler(events.http("/broken", headers=KEY), CONTEXT)
    assert limiter.available("user-1", "api")["calls"] == 3
    assert handler(events.http("/bad", headers=KEY), CONTEXT)["statusCode"] == 400
    assert limiter.available("user-1", "api")["calls"] == 2
    with pytest.raises(RuntimeError):
        plain(events.http, limiter, policy())(events.http("/broken", headers=KEY), CONTEXT)
    assert limiter.available("user-1", "api")["calls"] == 2


@pytest.mark.parametrize("make", [powertools, plain])
def test_a_request_for_which_the_key_is_none_is_not_limited(limiter, make):
    handler = make(events.http, limiter, policy(key=lambda request: None))
    answers = [handler(events.http("/hello"), CONTEXT) for _ in range(5)]
    assert {answer["statusCode"] for answer in answers} == {200}
    assert events.header(answers[0], "RateLimit") is None


@pytest.mark.parametrize("make", [powertools, plain])
def test_the_name_of_an_operation_is_a_cost(limiter, make):
    handler = make(events.http, limiter, policy(cost="export"))
    answers = [handler(events.http("/hello", headers=KEY), CONTEXT) for _ in range(2)]
    assert [answer["statusCode"] for answer in answers] == [200, 429]


@pytest.mark.parametrize("make", [powertools, plain])
def test_without_the_table_the_policy_is_applied_and_said(adapter, make):
    adapter.cut()
    event = events.http("/hello", headers=KEY)
    blocked = make(events.http, adapter.limiter, policy())(event, CONTEXT)
    passed = make(events.http, adapter.limiter, policy(on_unavailable="allow"))(event, CONTEXT)
    assert [blocked["statusCode"], passed["statusCode"]] == [503, 200]
    for answer in (blocked, passed):
        assert events.header(answer, "X-RateLimit-Degraded") == "true"
        assert "the cable is cut" in events.header(answer, "X-RateLimit-Degraded-Reason")


def test_headers_can_be_left_out(limiter):
    answer = plain(events.http, limiter, policy(show=False))(events.http("/x"), CONTEXT)
    assert events.header(answer, "RateLimit") is None
    assert events.header(answer, "x-own") == "1"


@pytest.mark.parametrize(("gives", "body"), [({"a": 1}, '{"a": 1}'), ("text", "text")])
def test_an_answer_without_a_status_is_completed_as_an_http_api_does(limiter, gives, body):
    handler = limited(limiter, policy())(lambda event, context: gives)
    answer = handler(events.http(headers=KEY), CONTEXT)
    assert (answer["statusCode"], answer["body"]) == (200, body)
    assert events.header(answer, "RateLimit")


def test_an_event_that_is_no_request_is_limited_by_what_is_raised(adapter):
    key = {"key": lambda request: request.raw["user"]}
    used = {"used": lambda request, answer: {"calls": answer.json()["calls"]}}
    handler = limited(adapter.limiter, policy(**key, **used))(lambda event, context: {"calls": 3})
    assert handler({"user": "user-1"}, CONTEXT) == {"calls": 3}
    with pytest.raises(RateLimitExceeded):
        handler({"user": "user-1"}, CONTEXT)
    adapter.cut()
    with pytest.raises(RateLimiterUnavailable):
        handler({"user": "user-2"}, CONTEXT)


def test_the_middleware_needs_no_framework_to_be_imported():
    script = (
        "import sys, headgate.middleware.asgi, headgate.middleware.handler, "
        "headgate.middleware.powertools\n"
        "print([n for n in ('starlette', 'fastapi', 'aws_lambda_powertools', 'boto3')"
        " if n in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, check=True)
    assert done.stdout.decode().strip() == "[]"
