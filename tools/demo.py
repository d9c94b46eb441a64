"""`make demo`: deploys the limiter into the embedded emulator and uses it from a function.

Four invocations of the deployed function compete for one user's bucket of 100 that regains 10
a second: until it is empty, at once again, and after a pause. At the end, the usage that the
deployed aggregator counted is held against what the functions say they got.
"""

from __future__ import annotations

import json
import math
import os
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import boto3
from botocore.config import Config
from rich.console import Console, JustifyMethod
from rich.table import Table

import deploy
import engine
from headgate import SyncRateLimiter

USER = "alice"
CAPACITY, RATE = 100, 10
CALLERS = 4
PAUSE = 5
PATIENCE = 60.0

console = Console(highlight=False)


@dataclass(frozen=True)
class Round:
    """What the callers got at one go, and what they could have got at most."""

    name: str
    admitted: list[int]
    most: int
    retry_after: float


def main() -> int:
    """Run the demo; 0 if every promise that it shows was kept."""
    with engine.ministack() as running:
        os.environ.update(engine.environment(running.endpoint_url))
        with console.status("deploying the stack into the embedded emulator with the CDK …"):
            began = time.monotonic()
            deploy.bootstrap(running.endpoint_url)
            outputs = deploy.deploy(running.endpoint_url, engine.ROOT / "examples/demo_stack.py")
            deployed = outputs["Demo"]
            took = time.monotonic() - began
        console.print(f"deployed table [b]{deployed['Table']}[/] and its functions in {took:.0f} s")
        console.print(
            f"{CALLERS} callers share one bucket: {CAPACITY} requests at once, {RATE} a second"
        )
        start = datetime.now(UTC) - timedelta(minutes=1)
        rounds = play(deployed["Caller"])
        console.print(table_of(rounds))
        return judge(rounds, deployed["Table"], start)


def play(function: str) -> list[Round]:
    """Three rounds: full, empty, refilled."""
    patient = Config(
        read_timeout=60, retries={"total_max_attempts": 1}, max_pool_connections=CALLERS
    )
    client = boto3.client("lambda", config=patient)

    def call(_: int) -> dict[str, Any]:
        payload = json.dumps({"user": USER})
        answer = client.invoke(FunctionName=function, Payload=payload)
        body = json.loads(answer["Payload"].read())
        if "FunctionError" in answer:
            raise RuntimeError(f"the function failed: {body}")
        return dict(body)

    drawn = 0
    first: float | None = None
    rounds = []
    with ThreadPoolExecutor(CALLERS) as pool:
        for name, pause in (("the bucket is full", 0), ("at once again", 0), ("refilled", PAUSE)):
            if pause:
                with console.status(f"waiting {pause} s …"):
                    time.sleep(pause)
            first = first or time.time()
            answers = list(pool.map(call, range(CALLERS)))
            # The promise: never more than the capacity and what accrued since the first call.
            bound = CAPACITY + math.floor(RATE * (time.time() - first + 0.1)) - drawn
            admitted = [answer["admitted"] for answer in answers]
            drawn += sum(admitted)
            waits = [answer["retry_after"] for answer in answers]
            rounds.append(Round(name, admitted, bound, max(waits)))
    client.close()
    return rounds


def table_of(rounds: list[Round]) -> Table:
    """The rounds for people."""
    table = Table(title=f"requests admitted for {USER!r}")
    columns: dict[str, JustifyMethod] = {
        "round": "left",
        "by caller": "left",
        "together": "right",
        "at most": "right",
        "retry after": "right",
    }
    for heading, justify in columns.items():
        table.add_column(heading, justify=justify, no_wrap=True)
    for one in rounds:
        table.add_row(
            one.name,
            " + ".join(map(str, one.admitted)),
            f"[b]{sum(one.admitted)}[/]",
            str(one.most),
            f"{one.retry_after:.3f} s",
        )
    return table


def judge(rounds: list[Round], table: str, start: datetime) -> int:
    """Whether it was as promised."""
    total = sum(sum(one.admitted) for one in rounds)
    over = [one.name for one in rounds if sum(one.admitted) > one.most]
    with SyncRateLimiter(table, read_timeout=10) as limiter:
        counted = 0
        with console.status("waiting for the aggregator to count the usage …"):
            deadline = time.monotonic() + PATIENCE
            while counted != total and time.monotonic() < deadline:
                time.sleep(0.5)
                summary = limiter.get_usage_summary(entity_id=USER, resource="api", start=start)
                counted = summary.millitokens.get("requests", 0) // 1000
    console.print(f"usage by the snapshots: {counted} requests; by the callers: {total}")
    if over or counted != total:
        console.print("[red]not as promised[/]: " + (", ".join(over) or "the usage differs"))
        return 1
    console.print("[green]as promised[/]: never too many, and every one of them counted once")
    return 0


if __name__ == "__main__":
    sys.exit(main())
