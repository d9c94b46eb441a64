from __future__ import annotations

import socket
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from urllib.parse import urlsplit

import boto3
import pytest

import engine

ENGINES = {"ministack": engine.ministack, "dynalite": engine.dynalite}
TABLE = {
    "TableName": "engines",
    "KeySchema": [{"AttributeName": "PK", "KeyType": "HASH"}],
    "AttributeDefinitions": [{"AttributeName": "PK", "AttributeType": "S"}],
    "BillingMode": "PAY_PER_REQUEST",
}


def client_of(running):
    return boto3.client("dynamodb", endpoint_url=running.endpoint_url, region_name=engine.REGION)


def connect(endpoint_url):
    url = urlsplit(endpoint_url)
    return socket.create_connection((url.hostname, url.port), timeout=30)


@pytest.mark.parametrize("name", ENGINES)
def test_an_engine_keeps_items_until_it_is_reset(name, request):
    running = request.getfixturevalue(name)
    client = client_of(running)
    running.reset()
    client.create_table(**TABLE)
    client.get_waiter("table_exists").wait(TableName="engines", WaiterConfig={"Delay": 1})
    client.put_item(TableName="engines", Item={"PK": {"S": "a"}})
    found = client.get_item(TableName="engines", Key={"PK": {"S": "a"}})
    assert found["Item"] == {"PK": {"S": "a"}}

    running.reset()

    assert client.list_tables()["TableNames"] == []


@pytest.mark.parametrize("name", ENGINES)
def test_an_engine_listens_on_loopback_only(name, request):
    assert request.getfixturevalue(name).endpoint_url.startswith("http://127.0.0.1:")


@pytest.mark.parametrize("name", ENGINES)
def test_an_engine_ends_with_its_block_however_that_is_left(name):
    with pytest.raises(KeyboardInterrupt), ENGINES[name]() as running:
        connect(running.endpoint_url).close()
        raise KeyboardInterrupt
    with pytest.raises(ConnectionRefusedError):
        connect(running.endpoint_url)


@pytest.mark.parametrize("name", ENGINES)
def test_an_engine_ends_when_the_process_that_started_it_is_killed(name):
    script = (
        "import engine\n"
        f"with engine.{name}() as running:\n"
        "    print(running.endpoint_url, flush=True)\n"
        "    input()\n"
    )
    owner = subprocess.Popen(
        [sys.executable, "-c", script],
        cwd=Path(engine.__file__).parent,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with owner, connect(owner.stdout.readline().strip()) as connection:
        owner.kill()
        # The connection ends when the engine does.
        with suppress(ConnectionResetError):
            assert connection.recv(1) == b""


def test_an_engine_that_cannot_start_shows_the_end_of_its_log(monkeypatch, tmp_path):
    (tmp_path / ".engine/bin").mkdir(parents=True)
    fake = tmp_path / ".engine/bin/ministack"
    fake.write_text("#!/bin/sh\necho no room for me\nexit 3\n")
    fake.chmod(0o755)
    monkeypatch.setattr(engine, "ROOT", tmp_path)
    with pytest.raises(engine.EngineError, match=r"exited with 3(.|\n)*no room for me"):
        engine.ministack().__enter__()


def test_an_engine_that_is_not_installed_says_how_to_install_it(monkeypatch, tmp_path):
    monkeypatch.setattr(engine, "ROOT", tmp_path)
    with pytest.raises(engine.EngineError, match="make setup"):
        engine.ministack().__enter__()
