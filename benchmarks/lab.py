"""Where measurements are made: the engine, processes of either contender, a recorder or a replay
before them. Every process that is started here is ended here.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

import boto3

import engine
from benchmarks.meter import Meter
from benchmarks.recorder import Recorder, recording

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
PYTHON = {"headgate": sys.executable, "peer": str(ROOT / ".peer/bin/python")}
# Answers are recorded from a table of this name, and replayed for it.
REPLAYED = "bench-replay"
# The worker says what it is about to do, which only a recorder understands.
MARKED = {"BENCH_MARKED": "1"}
PATIENCE = 300  # seconds


@dataclass(slots=True)
class Lab:
    """One run. `replies` are what each contender was answered when it was recorded."""

    url: str
    quick: bool
    replies: dict[str, dict[str, Any]] = field(default_factory=dict)
    _tables: Iterator[int] = field(default_factory=lambda: count(1))

    def table(self) -> str:
        """A name that no other measurement has."""
        return f"bench-{next(self._tables)}"

    def work(self, who: str, task: str, **options: Any) -> dict[str, Any]:
        """One task of the worker, straight at the engine, with a table of its own."""
        return work(who, task, self.url, self.table(), **options)

    def recorded(self, who: str, task: str, **options: Any) -> tuple[Any, Recorder, Meter]:
        """One task of the worker, with the recorder between it and the engine."""
        table = self.table()
        with recording(self.url) as recorder:
            found = run(
                who, "worker.py", [task, json.dumps(options)], recorder.url, table, **MARKED
            )
        return found, recorder, self.meter(table)

    def meter(self, table: str) -> Meter:
        """The meter of a table as it is."""
        client = boto3.client("dynamodb", endpoint_url=self.url, region_name=engine.REGION)
        try:
            return Meter(client.describe_table(TableName=table)["Table"])
        finally:
            client.close()

    def record_replies(self, who: str) -> None:
        """Has what a warm acquire is answered written down, once."""
        if who in self.replies:
            return
        with recording(self.url) as recorder:
            found = work(who, "record", recorder.url, REPLAYED)
        if "failed" in found:
            raise RuntimeError(f"{who}: {found['failed']}")
        self.replies[who] = recorder.replies
        client = boto3.client("dynamodb", endpoint_url=self.url, region_name=engine.REGION)
        client.delete_table(TableName=REPLAYED)
        client.close()

    @contextmanager
    def replay(self, who: str, delay: int = 0) -> Iterator[str]:
        """The address of a server that answers with what was recorded, so many ms later."""
        self.record_replies(who)
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "replies.json"
            file.write_text(json.dumps(self.replies[who]))
            server = subprocess.Popen(
                [sys.executable, str(HERE / "replay.py"), str(file), str(delay)],
                stdin=subprocess.PIPE,  # it ends when this closes, for whatever reason
                stdout=subprocess.PIPE,
                text=True,
            )
            try:
                port = server.stdout.readline() if server.stdout else ""
                yield f"http://127.0.0.1:{int(port)}"
            finally:
                server.kill()
                server.wait()
                for pipe in (server.stdin, server.stdout):
                    if pipe:
                        pipe.close()


def work(who: str, task: str, url: str, table: str, **options: Any) -> dict[str, Any]:
    """One task of the worker."""
    return run(who, "worker.py", [task, json.dumps(options)], url, table)


def run(
    who: str, script: str, arguments: list[str], url: str, table: str, **settings: str
) -> dict[str, Any]:
    """A process in the contender's environment; what its last line says."""
    paths = [str(HERE)]
    if who == "headgate":
        paths += [str(ROOT / "client"), str(ROOT / "lambdas")]
    more = {
        "PYTHONPATH": os.pathsep.join(paths),
        "BENCH_TABLE": table,
        "POWERTOOLS_LOG_LEVEL": "CRITICAL",
    }
    try:
        ran = subprocess.run(
            [PYTHON[who], str(HERE / script), who, *arguments],
            env={**os.environ, **engine.environment(url), **more, **settings},
            capture_output=True,
            text=True,
            check=False,
            timeout=PATIENCE,
        )
    except subprocess.TimeoutExpired:
        return {"failed": f"came to no end in {PATIENCE} s"}
    lines = ran.stdout.strip().splitlines()
    try:
        return dict(json.loads(lines[-1]))
    except (IndexError, ValueError):
        return {"failed": (ran.stderr.strip().splitlines() or ["no output"])[-1][:300]}


def medians(found: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Of each figure; or how it failed."""
    failed = [one["failed"] for one in found if "failed" in one]
    if failed:
        return {"failed": failed[0]}
    return {key: statistics.median(one[key] for one in found) for key in found[0]}


def latency(seconds: Sequence[float]) -> dict[str, float]:
    """The median and the 99th percentile, in milliseconds."""
    if not seconds:
        return {}
    ordered = sorted(seconds)
    return {
        "p50_ms": statistics.median(ordered) * 1e3,
        "p99_ms": ordered[min(len(ordered) - 1, int(len(ordered) * 0.99))] * 1e3,
    }
