"""An engine on this machine, for trying things out: ministack, with the table made.

It runs by itself until it is ended. Where it is and what ends it is kept in a folder.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request
from dataclasses import asdict, dataclass
from pathlib import Path

from headgate.errors import ValidationError
from headgate.schema import table_definition

LOOPBACK = "127.0.0.1"
REGION = "us-east-1"
_START_SECONDS = 60.0
_STOP_SECONDS = 10.0
_STATE = "engine.json"


@dataclass(frozen=True, slots=True)
class Running:
    """An engine that runs, and the table in it."""

    endpoint_url: str
    pid: int
    table: str

    def environment(self) -> dict[str, str]:
        """Variables with which the command, a limiter and any AWS SDK find it."""
        return {
            "AWS_ENDPOINT_URL": self.endpoint_url,
            "AWS_ACCESS_KEY_ID": "local",
            "AWS_SECRET_ACCESS_KEY": "local",
            "AWS_REGION": REGION,
            "AWS_DEFAULT_REGION": REGION,
            "HEADGATE_TABLE": self.table,
        }


def default_folder() -> Path:
    """Where its state is kept unless another place is named."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "headgate"


def up(table: str, *, port: int = 0, folder: Path) -> Running:
    """Starts it, or finds the one that runs, and makes the table unless it is there."""
    running = found(folder)
    if running is None:
        running = _start(table, port or _free_port(), folder)
    else:
        running = Running(running.endpoint_url, running.pid, table)
    _make_table(running)
    _state(folder).write_text(json.dumps(asdict(running)))
    return running


def down(folder: Path) -> bool:
    """Ends it. False if none was running."""
    running = found(folder)
    _state(folder).unlink(missing_ok=True)
    if running is None:
        return False
    for sign in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(running.pid, sign)
        deadline = time.monotonic() + _STOP_SECONDS
        while time.monotonic() < deadline and _answers(running.endpoint_url):
            time.sleep(0.05)
        if not _answers(running.endpoint_url):
            break
    return True


def found(folder: Path) -> Running | None:
    """The one that was started from this folder, if it still answers."""
    try:
        running = Running(**json.loads(_state(folder).read_text()))
        os.kill(running.pid, 0)
    except (OSError, ValueError, TypeError):
        return None
    # A number that another process was given since does not answer here.
    return running if _answers(running.endpoint_url) else None


def engine() -> str:
    """The engine's program."""
    here = Path(".engine/bin/ministack")
    program = os.environ.get("HEADGATE_ENGINE") or (str(here.resolve()) if here.exists() else None)
    program = program or shutil.which("ministack")
    if program is None:
        raise ValidationError(
            "the engine is not installed: `pipx install ministack` (or `pip install ministack` "
            "in an environment of its own), or say where it is with HEADGATE_ENGINE"
        )
    return program


def _start(table: str, port: int, folder: Path) -> Running:
    program = engine()
    folder.mkdir(parents=True, exist_ok=True)
    url = f"http://{LOOPBACK}:{port}"
    settings = {"BIND_HOST": LOOPBACK, "GATEWAY_PORT": str(port), "LAMBDA_EXECUTOR": "local"}
    with (folder / "engine.log").open("wb") as log:
        process = subprocess.Popen(  # noqa: S603 - the engine that was named or installed
            [program],
            env={**os.environ, **Running(url, 0, table).environment(), **settings},
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    deadline = time.monotonic() + _START_SECONDS
    while not _answers(url):
        if process.poll() is not None or time.monotonic() > deadline:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            tail = (folder / "engine.log").read_text(errors="replace")[-1000:]
            raise ValidationError(f"{program} did not start; its log ends:\n{tail}")
        time.sleep(0.05)
    running = Running(url, process.pid, table)
    _state(folder).write_text(json.dumps(asdict(running)))
    # Not waited for: it outlives this command.
    process.returncode = 0
    return running


def _make_table(running: Running) -> None:
    import boto3  # noqa: PLC0415 - slow to load, and only needed here
    from botocore.exceptions import ClientError  # noqa: PLC0415

    environment = running.environment()
    client = boto3.Session(
        environment["AWS_ACCESS_KEY_ID"],
        environment["AWS_SECRET_ACCESS_KEY"],
        region_name=REGION,
    ).client("dynamodb", endpoint_url=running.endpoint_url)
    try:
        client.create_table(**table_definition(running.table))
        client.update_time_to_live(
            TableName=running.table,
            TimeToLiveSpecification={"Enabled": True, "AttributeName": "ttl"},
        )
    except ClientError as error:
        if error.response["Error"]["Code"] != "ResourceInUseException":
            raise ValidationError(f"the table could not be made: {error}") from None
    finally:
        client.close()


def _answers(url: str) -> bool:
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        direct.open(url, timeout=2).close()
    except urllib.error.HTTPError:
        return True
    except OSError:
        return False
    return True


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind((LOOPBACK, 0))
        return int(probe.getsockname()[1])


def _state(folder: Path) -> Path:
    return folder / _STATE
