"""A real engine is taken away from under the function, and brought back."""

import os
import signal

import pytest

import engine
from api import handler as entry
from api.service import Service
from headgate import Limit, SyncRateLimiter
from tests.api.conftest import SCOPES, Api
from tests.limiters import AgreedClock, Sync, Time, create_table


@pytest.fixture(scope="module")
def own():
    """An engine that nobody else uses."""
    with engine.ministack() as running:
        create_table("away", running.endpoint_url)
        yield running
        os.killpg(running.pid, signal.SIGCONT)


@pytest.mark.parametrize(
    ("policy", "checks", "health"),
    [("block", (503, True), (503, "unhealthy")), ("allow", (200, True), (200, "degraded"))],
)
def test_an_engine_that_stops_is_an_outage_until_it_goes_on(
    own, monkeypatch, policy, checks, health
):
    time = Time()
    with SyncRateLimiter(
        "away",
        endpoint_url=own.endpoint_url,
        on_unavailable=policy,
        connect_timeout=1,
        read_timeout=1,
        attempts=1,
        clock=AgreedClock(time),
    ) as limiter:
        api = Api(None, Sync(limiter))
        monkeypatch.setattr(entry, "service", lambda: Service(limiter, SCOPES, api.signer))
        limiter.set_limits([Limit.per_day("calls", 1000)], resource="api")
        assert api.check(policy, tokens={"calls": 1}).json["degraded"] is False

        os.killpg(own.pid, signal.SIGSTOP)
        answers = [api.check(policy, tokens={"calls": 1}) for _ in range(6)]
        told = {(one.status, one.headers["x-ratelimit-degraded"] == "true") for one in answers}
        assert told == {checks}
        down = api.health()
        assert (down.status, down.json["status"]) == health
        assert down.json["breaker"] == "open"

        os.killpg(own.pid, signal.SIGCONT)
        time.advance(11)
        while api.health().json["breaker"] != "closed":
            time.advance(61)
        assert api.check(policy, tokens={"calls": 1}).json["degraded"] is False
        assert api.health().json["status"] == "healthy"
