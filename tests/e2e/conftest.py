"""End to end: one engine and one prepared account for all of these tests."""

from __future__ import annotations

from pathlib import Path

import boto3
import pytest

import deploy
import engine

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items):
    # They share one account: what one deploys, another must not see half-made.
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.xdist_group("e2e"))


@pytest.fixture(scope="session")
def account():
    """An endpoint that the CDK was bootstrapped on."""
    with engine.ministack() as running:
        deploy.bootstrap(running.endpoint_url)
        yield running.endpoint_url


@pytest.fixture(scope="session")
def aws(account):
    """Clients of the account, by service."""
    clients = {}

    def client(service):
        if service not in clients:
            clients[service] = boto3.client(service, endpoint_url=account)
        return clients[service]

    yield client
    for made in clients.values():
        made.close()
