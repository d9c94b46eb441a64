from __future__ import annotations

import pytest

import engine
from tests.limiters import boto_session, create_table

TABLE = "limits"  # as every page calls it


@pytest.fixture
def table(ministack, monkeypatch):
    """An empty table, in an environment in which any client reaches it, as a reader's does."""
    for name, value in engine.environment(ministack.endpoint_url).items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("HEADGATE_TABLE", TABLE)
    create_table(TABLE, ministack.endpoint_url)
    yield TABLE
    client = boto_session().client("dynamodb", endpoint_url=ministack.endpoint_url)
    client.delete_table(TableName=TABLE)
    client.close()
