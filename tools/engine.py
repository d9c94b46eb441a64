"""Start and stop the DynamoDB engines that tests, demo and benchmarks run on.

Each engine listens on a free loopback port, keeps its files in a folder of its own and is ended
with everything it started when its block is left, and also when this process is killed.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import tempfile
import time
import urllib.request
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import boto3

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

ROOT = Path(__file__).resolve().parent.parent
REGION = "us-east-1"
LOOPBACK = "127.0.0.1"
START_SECONDS = 60.0
STOP_SECONDS = 5.0

# The watcher reads a pipe from this process. When the pipe closes, for whatever reason, it ends
# the whole group, whose leader the engine has become.
WATCHED = 'exec 3<&0; (cat <&3 >/dev/null; kill -KILL -$$) & exec "$@" </dev/null 3<&-'


class EngineError(RuntimeError):
    """An engine did not start; carries the end of its log."""


@dataclass(frozen=True)
class Engine:
    """A running engine. `reset` removes every table and whatever else it holds."""

    endpoint_url: str
    pid: int
    reset: Callable[[], None]


def environment(endpoint_url: str) -> dict[str, str]:
    """Variables with which any AWS SDK talks to the engine and to nothing else."""
    return {
        "AWS_ENDPOINT_URL": endpoint_url,
        "AWS_ACCESS_KEY_ID": "testing",
        "AWS_SECRET_ACCESS_KEY": "testing",
        "AWS_REGION": REGION,
        "AWS_DEFAULT_REGION": REGION,
        "AWS_CONFIG_FILE": os.devnull,
        "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
        "AWS_EC2_METADATA_DISABLED": "true",
        "NO_PROXY": f"{LOOPBACK},localhost",
    }


@contextmanager
def ministack() -> Iterator[Engine]:
    """The default engine: DynamoDB with transactions and streams, Lambda, CloudFormation."""
    port = _free_port()
    url = f"http://{LOOPBACK}:{port}"
    settings = {"BIND_HOST": LOOPBACK, "GATEWAY_PORT": str(port), "LAMBDA_EXECUTOR": "local"}
    with _running([str(ROOT / ".engine/bin/ministack")], url, settings) as pid:
        yield Engine(url, pid, lambda: _request(f"{url}/_ministack/reset", b""))


@contextmanager
def dynalite() -> Iterator[Engine]:
    """The second opinion on expressions: DynamoDB alone, stricter, without transactions."""
    port = _free_port()
    url = f"http://{LOOPBACK}:{port}"
    command = [str(ROOT / "node_modules/.bin/dynalite"), "--host", LOOPBACK, "--port", str(port)]
    command += [f"--{verb}TableMs=0" for verb in ("create", "update", "delete")]
    with _running(command, url, {}) as pid:
        yield Engine(url, pid, lambda: _drop_tables(url))


@contextmanager
def _running(command: list[str], url: str, settings: dict[str, str]) -> Iterator[int]:
    if not Path(command[0]).exists():
        raise EngineError(f"{command[0]} is not installed: run `make setup`")
    # A folder that the engine is still leaving must not hide why the block was left.
    with tempfile.TemporaryDirectory(prefix="headgate-", ignore_cleanup_errors=True) as folder:
        log = Path(folder, "log")
        with log.open("wb") as output:
            process = subprocess.Popen(
                ["/bin/sh", "-c", WATCHED, "sh", *command],
                env={**os.environ, **environment(url), **settings, "TMPDIR": folder},
                cwd=folder,
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        try:
            _wait(process, url, log)
            yield process.pid
        finally:
            _end(process)


def _wait(process: subprocess.Popen[bytes], url: str, log: Path) -> None:
    deadline = time.monotonic() + START_SECONDS
    while process.poll() is None and time.monotonic() < deadline:
        with suppress(OSError):
            return _request(url)
        with suppress(subprocess.TimeoutExpired):
            process.wait(0.05)
    how = "did not answer" if process.returncode is None else f"exited with {process.returncode}"
    raise EngineError(f"the engine {how}; its log ends:\n{log.read_text(errors='replace')[-2000:]}")


def _end(process: subprocess.Popen[bytes]) -> None:
    for sign in (signal.SIGTERM, signal.SIGKILL):
        with suppress(ProcessLookupError, subprocess.TimeoutExpired):
            os.killpg(process.pid, sign)
            process.wait(STOP_SECONDS)
    if process.stdin:
        process.stdin.close()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind((LOOPBACK, 0))
        return int(probe.getsockname()[1])


def _request(url: str, data: bytes | None = None) -> None:
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    direct.open(url, data=data, timeout=STOP_SECONDS).close()


def _drop_tables(url: str) -> None:
    session = boto3.Session("testing", "testing", region_name=REGION)
    client = session.client("dynamodb", endpoint_url=url)
    for page in client.get_paginator("list_tables").paginate():
        for name in page["TableNames"]:
            client.delete_table(TableName=name)
            client.get_waiter("table_not_exists").wait(TableName=name, WaiterConfig={"Delay": 1})
