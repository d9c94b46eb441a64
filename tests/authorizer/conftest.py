from __future__ import annotations

import json

import pytest

from authorizer.gate import Gate
from authorizer.settings import Settings
from headgate import Limit
from tests.authorizer import issuer
from tests.behaviour.backends import simulator


@pytest.fixture
def backend(request):
    with simulator(request) as made:
        yield made
        made.close()


@pytest.fixture
def adapter(backend):
    """A blocking limiter over the simulator, which can be cut off."""
    made = backend.limiter()
    # By the day: no time that a test takes gives anything back.
    made.set_limits([Limit.per_day("calls", 3)])
    return made


@pytest.fixture
def limiter(adapter):
    return adapter.limiter


@pytest.fixture(scope="session")
def key():
    return issuer.make_key()


@pytest.fixture
def endpoint(key):
    return issuer.Endpoint(issuer.jwk(key))


@pytest.fixture
def make_gate(limiter, endpoint):
    """A gate as the construct's setting makes it."""

    def make(key, *, also=(), token=None, **options):
        scopes = [{"key": key, "resource": "api", "cost": {"calls": 1}}, *also]
        text = json.dumps({"scopes": scopes, "token": token, **options})
        clock = lambda: issuer.NOW  # noqa: E731
        return Gate(limiter, Settings.parse(text), fetch=endpoint.fetch, clock=clock)

    return make
