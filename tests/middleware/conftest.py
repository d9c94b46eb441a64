from __future__ import annotations

import uuid

import pytest

from headgate import Limit, RateLimiter
from tests.behaviour.backends import simulator
from tests.limiters import aio_session, create_table

# By the day: no time that a test takes gives anything back.
LIMITS = [Limit.per_day("calls", 3), Limit.per_day("tokens", 1000)]
COSTS = {"export": {"calls": 3}}


@pytest.fixture
def adapter(request):
    """A blocking limiter over the simulator, which can be cut off."""
    with simulator(request) as backend:
        made = backend.limiter()
        made.set_limits(LIMITS)
        made.set_costs(COSTS, resource="api")
        yield made
        backend.close()


@pytest.fixture
def limiter(adapter):
    return adapter.limiter


@pytest.fixture
async def aio(ministack):
    """A limiter on this test's event loop."""
    table = f"table-{uuid.uuid4().hex}"
    create_table(table, ministack.endpoint_url)
    async with RateLimiter(
        table,
        endpoint_url=ministack.endpoint_url,
        session=aio_session(),
        connect_timeout=20,
        read_timeout=20,
    ) as made:
        await made.set_limits(LIMITS)
        await made.set_costs(COSTS, resource="api")
        yield made
