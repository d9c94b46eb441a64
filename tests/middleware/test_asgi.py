"""The ASGI middleware in FastAPI and in Starlette."""

from __future__ import annotations

import json
from contextlib import asynccontextmanager

import httpx
import pytest
from fastapi import FastAPI, HTTPException
from starlette.applications import Starlette
from starlette.responses import JSONResponse, StreamingResponse
from starlette.routing import Route

from headgate import RateLimiter, RateLimitExceeded, SyncRateLimiter, ValidationError
from headgate.middleware import Policy, Scope, by_claim, by_header, by_ip, everyone
from headgate.middleware.asgi import RateLimitMiddleware
from tests.servers import nobody

KEY = {"x-api-key": "user-1"}


def policy(**changes):
    plain = {"key": by_header("x-api-key"), "resource": "api", "cost": {"calls": 1}}
    return Policy(**plain | changes)


def fastapi_app():
    app = FastAPI()

    @app.get("/hello")
    async def hello():
        return {"used": 120}

    @app.get("/bad")
    async def bad():
        raise HTTPException(422, "no")

    @app.get("/broken")
    async def broken():
        raise RuntimeError("as the test wants it")

    @app.get("/nested")
    async def nested():
        raise RateLimitExceeded("another", "thing", (), retry_after=1.0)

    @app.get("/stream")
    async def stream():
        def parts():
            yield "data: hello\n\n"
            yield 'data: {"used": 250}\n\n'

        return StreamingResponse(parts(), media_type="text/event-stream")

    return app


def starlette_app():
    async def hello(request):
        return JSONResponse({"used": 120})

    return Starlette(routes=[Route("/hello", hello)])


@asynccontextmanager
async def client_of(app, limiter, chosen):
    app.add_middleware(RateLimitMiddleware, limiter=limiter, policy=chosen)
    transport = httpx.ASGITransport(app, raise_app_exceptions=False, client=("2001:db8::7", 1))
    async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
        yield client


@pytest.mark.parametrize("make", [fastapi_app, starlette_app])
async def test_requests_pass_with_headers_until_the_limit_and_then_get_429(aio, make):
    async with client_of(make(), aio, policy()) as client:
        passed = [await client.get("/hello", headers=KEY) for _ in range(3)]
        refused = await client.get("/hello", headers=KEY)
        other = await client.get("/hello", headers={"x-api-key": "user-2"})
    assert [answer.status_code for answer in passed] == [200] * 3
    assert [answer.headers["x-ratelimit-remaining"] for answer in passed] == ["2", "1", "0"]
    assert refused.status_code == 429
    assert int(refused.headers["retry-after"]) > 0
    assert refused.headers["x-ratelimit-scope"] == "api"
    told = refused.json()
    assert told["error"] == "rate_limit_exceeded"
    assert told["blocked"] == ["api"]
    assert "user-1" not in refused.text
    assert other.status_code == 200


async def test_whoever_has_no_key_shares_a_bucket_and_none_is_not_limited(aio):
    key = {"key": lambda r: None if r.path == "/bad" else by_header("x-api-key")(r)}
    async with client_of(fastapi_app(), aio, policy(**key)) as client:
        for _ in range(3):
            assert (await client.get("/hello")).status_code == 200
        assert (await client.get("/hello")).status_code == 429
        free = await client.get("/bad")
    assert free.status_code == 422
    assert "ratelimit" not in free.headers


async def test_a_key_that_cannot_name_anybody_is_a_bad_request(aio):
    async with client_of(fastapi_app(), aio, policy()) as client:
        answer = await client.get("/hello", headers={"x-api-key": "a#b"})
    assert answer.status_code == 400
    assert answer.json()["error"] == "bad_request"


async def test_an_error_of_the_application_gives_back_and_an_answer_of_4xx_does_not(aio):
    async with client_of(fastapi_app(), aio, policy()) as client:
        assert (await client.get("/broken", headers=KEY)).status_code == 500
        assert await aio.available("user-1", "api") == {"calls": 3, "tokens": 1000}
        assert (await client.get("/bad", headers=KEY)).status_code == 422
        assert await aio.available("user-1", "api") == {"calls": 2, "tokens": 1000}


async def test_what_the_application_itself_raises_is_not_taken_for_ours(aio):
    async with client_of(fastapi_app(), aio, policy()) as client:
        assert (await client.get("/nested", headers=KEY)).status_code == 500


async def test_the_cost_may_be_a_function_or_the_name_of_an_operation(aio):
    cost = {"cost": lambda r: "export" if r.path == "/bad" else {"calls": 1, "tokens": len(r.path)}}
    async with client_of(fastapi_app(), aio, policy(**cost)) as client:
        assert (await client.get("/hello", headers=KEY)).status_code == 200
        assert await aio.available("user-1", "api") == {"calls": 2, "tokens": 994}
        assert (await client.get("/bad", headers=KEY)).status_code == 429


async def test_the_estimate_is_corrected_by_what_the_answer_says(aio):
    def used(request, answer):
        assert answer.status == 200
        if answer.headers["content-type"].startswith("text/event-stream"):
            return {"tokens": json.loads(answer.body.split(b"data: ")[-1])["used"]}
        return {"tokens": answer.json()["used"]}

    chosen = policy(cost={"calls": 1, "tokens": 200}, used=used)
    async with client_of(fastapi_app(), aio, chosen) as client:
        await client.get("/hello", headers=KEY)
        assert await aio.available("user-1", "api") == {"calls": 2, "tokens": 880}
        streamed = await client.get("/stream", headers=KEY)
        assert streamed.text.startswith("data: hello")
        assert await aio.available("user-1", "api") == {"calls": 1, "tokens": 630}


@pytest.mark.parametrize("used", [lambda r, a: a.json()["absent"], lambda r, a: {"absent": 1}])
async def test_an_answer_that_does_not_say_what_was_used_keeps_the_estimate(aio, used, caplog):
    chosen = policy(cost={"calls": 1, "tokens": 200}, used=used)
    async with client_of(fastapi_app(), aio, chosen) as client:
        assert (await client.get("/hello", headers=KEY)).status_code == 200
    assert await aio.available("user-1", "api") == {"calls": 2, "tokens": 800}
    assert "the estimate stays" in caplog.text


async def test_several_scopes_pass_together_or_not_at_all(aio):
    also = [
        Scope(name="address", key=by_ip, resource="by-address", cost={"calls": 2}),
        Scope(name="all", key=everyone, resource="api", cost={"calls": 1}),
    ]
    async with client_of(fastapi_app(), aio, policy(name="user", also=also)) as client:
        assert (await client.get("/hello", headers=KEY)).status_code == 200
        refused = await client.get("/hello", headers=KEY)
    assert refused.status_code == 429
    assert refused.json()["scope"] == "address"
    assert refused.headers["x-ratelimit-scope"] == "address"
    assert (await aio.available("user-1", "api"))["calls"] == 2
    assert (await aio.available("everyone", "api"))["calls"] == 2
    assert (await aio.available("2001:db8::/64", "by-address"))["calls"] == 1


async def test_claims_that_were_verified_before_name_the_caller(aio):
    class Verified:
        def __init__(self, app):
            self.app = app

        async def __call__(self, scope, receive, send):
            scope.setdefault("state", {})["claims"] = {"sub": "subject-1"}
            await self.app(scope, receive, send)

    app = fastapi_app()
    app.add_middleware(RateLimitMiddleware, limiter=aio, policy=policy(key=by_claim("sub")))
    app.add_middleware(Verified)
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://t") as client:
        assert (await client.get("/hello")).status_code == 200
    assert (await aio.available("subject-1", "api"))["calls"] == 2


async def test_without_the_table_the_policy_is_applied_and_said():
    async with RateLimiter("limits", endpoint_url=nobody(), namespace_id="somewhere__") as limiter:
        async with client_of(fastapi_app(), limiter, policy()) as client:
            blocked = await client.get("/hello", headers=KEY)
        async with client_of(fastapi_app(), limiter, policy(on_unavailable="allow")) as client:
            passed = await client.get("/hello", headers=KEY)
    assert blocked.status_code == 503
    assert blocked.headers["retry-after"] == "1"
    assert blocked.json() == {"error": "rate_limiter_unavailable", "degraded": True}
    assert passed.status_code == 200
    for answer in (blocked, passed):
        assert answer.headers["x-ratelimit-degraded"] == "true"
        assert answer.headers["x-ratelimit-degraded-reason"]


async def test_what_is_no_request_passes():
    seen = []

    async def app(scope, receive, send):
        seen.append(scope["type"])

    async with RateLimiter("limits", endpoint_url=nobody()) as limiter:
        middleware = RateLimitMiddleware(app, limiter, policy())
        await middleware({"type": "lifespan"}, None, None)
    assert seen == ["lifespan"]


def test_a_limiter_that_blocks_is_refused():
    with pytest.raises(ValidationError, match="takes a RateLimiter: SyncRateLimiter given"):
        RateLimitMiddleware(None, SyncRateLimiter("limits"), policy())


@pytest.mark.parametrize(
    "wrong",
    [
        {"key": "user-1"},
        {"resource": "a#b"},
        {"cost": {"calls": 1.5}},
        {"cost": {"calls": -1}},
        {"on_unavailable": "maybe"},
        {"max_wait": -1},
    ],
)
def test_a_policy_that_can_never_be_right_is_refused_where_it_is_written(wrong):
    with pytest.raises(ValidationError):
        policy(**wrong)
