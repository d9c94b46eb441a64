from __future__ import annotations

import pytest

import engine
from headgate.limiter import _Limiter
from tests.limiters import boto_session, create_table

TABLE = "limits"  # as every page calls it


@pytest.fixture
def table(ministack, monkeypatch):
    """An empty table, in an environment in which any client reaches it, as a reader's does."""
    for name, value in engine.environment(ministack.endpoint_url).items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("HEADGATE_TABLE", TABLE)
    # A shared machine may be slower than a page, which sets no timeouts, would wait for.
    for name in ("connect_timeout", "read_timeout"):
        monkeypatch.setitem(_Limiter.__init__.__kwdefaults__, name, 20.0)
    create_table(TABLE, ministack.endpoint_url)
    yield TABLE
    client = boto_session().client("dynamodb", endpoint_url=ministack.endpoint_url)
    client.delete_table(TableName=TABLE)
    client.close()
