"""`make bench`: the cost of an acquire, and the race against the peer.

Everything is measured in one run on one machine, in turns, and compared by its ratio. The last
line that is printed is one JSON object with those ratios.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import boto3
from rich.console import Console

import engine
from benchmarks import grid, page, report
from benchmarks.meter import Meter
from benchmarks.recorder import Recorder, recording

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
PYTHON = {"headgate": sys.executable, "peer": str(ROOT / ".peer/bin/python")}
SCENARIOS = (
    "warm refill_due idle first cascade two_resources rejection adjust".split()  # in this order
)
# One acquire of the slow ones takes seconds of waiting.
SHORT = {"refill_due", "idle"}
DELAY = 20  # milliseconds to the engine and back

console = Console(highlight=False, stderr=False)


def run(who: str, script: str, arguments: list[str], url: str, table: str) -> dict[str, Any]:
    """A process in the contender's environment; what its last line says."""
    paths = [str(HERE)]
    if who == "headgate":
        paths += [str(ROOT / "client"), str(ROOT / "lambdas")]
    settings = {
        "PYTHONPATH": os.pathsep.join(paths),
        "BENCH_TABLE": table,
        "POWERTOOLS_LOG_LEVEL": "CRITICAL",
    }
    ran = subprocess.run(
        [PYTHON[who], str(HERE / script), who, *arguments],
        env={**os.environ, **engine.environment(url), **settings},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    lines = ran.stdout.strip().splitlines()
    try:
        return dict(json.loads(lines[-1]))
    except (IndexError, ValueError):
        return {"failed": (ran.stderr.strip().splitlines() or ["no output"])[-1][:300]}


def work(who: str, task: str, url: str, table: str, **options: Any) -> dict[str, Any]:
    """One task of the worker."""
    return run(who, "worker.py", [task, json.dumps(options)], url, table)


class Bench:
    """One run: what is measured goes into `results`."""

    def __init__(self, engine_url: str, *, quick: bool) -> None:
        self.url = engine_url
        self.quick = quick
        self.results: dict[str, Any] = {}
        self._tables = 0

    def all(self) -> None:
        """Everything, in order of interest."""
        for step in (
            self.scenarios,
            self.aggregator,
            self.grid,
            self.overhead,
            self.concurrency,
            self.sizes,
        ):
            began = time.monotonic()
            step()
            console.print(f"[dim]{step.__name__}: {time.monotonic() - began:.0f} s[/]")

    def scenarios(self) -> None:
        """Requests, units and latency of each scenario, counted and metered before the engine."""
        times = 10 if self.quick else 50
        rows = []
        for name in SCENARIOS:
            for limits in (2,) if self.quick else (1, 2, 4, 8):
                for who in PYTHON:
                    found, recorder, meter = self._recorded(
                        who, "scenario", name=name, limits=limits, times=times
                    )
                    rows.append(_row(who, name, limits, found, recorder, meter))
        self.results["scenarios"] = rows

    def aggregator(self) -> None:
        """What the stream's processor writes for each acquire."""
        count = 100
        for who in PYTHON:
            found, recorder, meter = self._recorded(who, "aggregate", acquires=count)
            if "failed" not in found:
                found |= meter.session(recorder.chapter("measured")).per(count)
            self.results.setdefault("aggregator", {})[who] = found

    def grid(self) -> None:
        """Several clients of one bucket, in virtual time."""
        logging.disable(logging.CRITICAL)
        cells = grid.grid(1_500 if self.quick else 5_000, seeds=1 if self.quick else 3)
        logging.disable(logging.NOTSET)
        self.results["grid"] = [
            {
                "clients": cell.clients,
                "load": cell.load,
                "acquires": cell.acquires,
                "admitted": cell.admitted,
                "requests": cell.per_acquire,
            }
            for cell in cells
        ]
        self.results["grid_mean"] = grid.mean(cells)

    def overhead(self) -> None:
        """CPU and start-up of each, against an engine that answers at once."""
        turns = 3 if self.quick else 7
        cpu: dict[str, list[dict[str, Any]]] = {who: [] for who in PYTHON}
        start: dict[str, list[dict[str, Any]]] = {who: [] for who in PYTHON}
        for who in PYTHON:
            self._record(who)
        for _ in range(turns):
            for who in PYTHON:
                with self._replay(who, 0) as url:
                    cpu[who].append(
                        work(who, "cpu", url, "bench-replay", times=300 if self.quick else 2_000)
                    )
                    start[who].append(run(who, "starter.py", [], url, "bench-replay"))
        self.results["cpu_us"] = {who: _medians(found) for who, found in cpu.items()}
        self.results["start_ms"] = {who: _medians(found) for who, found in start.items()}

    def concurrency(self) -> None:
        """Acquires in a second against an engine that is some milliseconds away."""
        seconds = 2.0 if self.quick else 5.0
        turns = 1 if self.quick else 3
        found: dict[str, dict[str, Any]] = {}
        for name, tasks, threads, entity in (
            ("10 tasks", 10, 0, "alice"),
            ("100 tasks", 100, 0, "alice"),
            ("1,000 tasks", 1_000, 0, "alice"),
            ("100 tasks, cascade", 100, 0, "child"),
            ("32 threads", 0, 32, "alice"),
            ("32 threads, cascade", 0, 32, "child"),
        ):
            rates: dict[str, list[dict[str, Any]]] = {who: [] for who in PYTHON}
            for _ in range(turns):
                for who in PYTHON:
                    with self._replay(who, DELAY) as url:
                        options = {"tasks": tasks, "threads": threads, "entity": entity}
                        rates[who].append(
                            work(who, "throughput", url, "bench-replay", seconds=seconds, **options)
                        )
            found[name] = {who: _medians(each) for who, each in rates.items()}
        self.results["throughput"] = found

    def sizes(self) -> None:
        """The layer, and what a process remembers of an entity."""
        with tempfile.TemporaryDirectory() as folder:
            target = Path(folder) / "layer.zip"
            command = [sys.executable, str(ROOT / "layers/build.py"), str(target)]
            subprocess.run(command, check=True, capture_output=True)
            self.results["layer_kb"] = round(target.stat().st_size / 1024, 1)
        self.results["bytes_per_entity"] = report.memory_of_an_entity()

    def _recorded(self, who: str, task: str, **options: Any) -> tuple[Any, Recorder, Meter]:
        self._tables += 1
        table = f"bench-{self._tables}"
        with recording(self.url) as recorder:
            found = work(who, task, recorder.url, table, **options)
        return found, recorder, self._meter(table)

    def _meter(self, table: str) -> Meter:
        client = boto3.client("dynamodb", endpoint_url=self.url, region_name=engine.REGION)
        try:
            return Meter(client.describe_table(TableName=table)["Table"])
        finally:
            client.close()

    def _record(self, who: str) -> None:
        with recording(self.url) as recorder:
            found = work(who, "record", recorder.url, "bench-replay")
        if "failed" in found:
            raise RuntimeError(f"{who}: {found['failed']}")
        self.results.setdefault("_replies", {})[who] = recorder.replies
        client = boto3.client("dynamodb", endpoint_url=self.url, region_name=engine.REGION)
        client.delete_table(TableName="bench-replay")
        client.close()

    @contextmanager
    def _replay(self, who: str, delay: int) -> Iterator[str]:
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "replies.json"
            file.write_text(json.dumps(self.results["_replies"][who]))
            server = subprocess.Popen(
                [sys.executable, str(HERE / "replay.py"), str(file), str(delay)],
                stdout=subprocess.PIPE,
                text=True,
            )
            try:
                port = server.stdout.readline() if server.stdout else ""
                yield f"http://127.0.0.1:{int(port)}"
            finally:
                server.kill()
                server.wait()
                if server.stdout:
                    server.stdout.close()


def _row(
    who: str, name: str, limits: int, found: Mapping[str, Any], recorder: Recorder, meter: Meter
) -> dict[str, Any]:
    row: dict[str, Any] = {"who": who, "scenario": name, "limits": limits}
    if "failed" in found:
        return row | {"failed": found["failed"]}
    seconds = sorted(found["seconds"])
    count = len(seconds)
    row |= meter.session(recorder.chapter("measured")).per(count)
    row["p50_ms"] = statistics.median(seconds) * 1e3
    row["p99_ms"] = seconds[min(count - 1, int(count * 0.99))] * 1e3
    return row


def _medians(found: list[dict[str, Any]]) -> dict[str, Any]:
    failed = [one["failed"] for one in found if "failed" in one]
    if failed:
        return {"failed": failed[0]}
    return {key: statistics.median(one[key] for one in found) for key in found[0]}


def main() -> int:
    """Run, show, store; 0 if it came to an end."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="fewer repetitions: minutes")
    options = parser.parse_args()
    began = time.monotonic()
    with engine.ministack() as running:
        os.environ.update(engine.environment(running.endpoint_url))
        bench = Bench(running.endpoint_url, quick=options.quick)
        bench.all()
    results = bench.results
    del results["_replies"]
    results["machine"] = {
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "cores": os.cpu_count(),
        "seconds": round(time.monotonic() - began),
        "command": "make bench QUICK=1" if options.quick else "make bench",
    }
    results["ratios"] = report.ratios(results)
    report.show(results, console)
    report.store(results, HERE / "results.json", ROOT / "docs")
    page.write(results, ROOT / "docs/benchmarks.md")
    print(json.dumps(results["ratios"]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
