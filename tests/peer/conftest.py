from __future__ import annotations

import uuid
from contextlib import ExitStack

import pytest

from tests.limiters import AgreedClock, Sync, Time, create_table


@pytest.fixture
def time():
    return Time()


@pytest.fixture
def table(ministack):
    name = f"table-{uuid.uuid4().hex}"
    create_table(name, ministack.endpoint_url)
    return name


@pytest.fixture
def make(ministack, table, time):
    """Makes clients of one table, on the test's time unless they bring a clock."""
    with ExitStack() as stack:

        def made(kind=Sync, **options):
            given = {
                "table": table,
                "endpoint_url": ministack.endpoint_url,
                "namespace_id": "peer-tests_",
                "clock": AgreedClock(time),
                "read_timeout": 30,
            }
            limiter = kind.made(**(given | options))
            stack.callback(limiter.close)
            return limiter

        yield made
