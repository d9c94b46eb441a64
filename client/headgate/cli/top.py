"""`headgate top`: the busiest buckets of a resource, as they are used."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.live import Live

from headgate.cli import output
from headgate.cli.flows import BucketState
from headgate.cli.session import Session, session

if TYPE_CHECKING:
    from rich.table import Table


def top(
    context: typer.Context,
    resource: Annotated[str, typer.Argument(help="The resource to watch.")],
    interval: Annotated[float, typer.Option(min=0.1, help="Seconds between looks.")] = 2.0,
    count: Annotated[int, typer.Option("--count", "-n", min=1, help="How many to show.")] = 20,
    once: Annotated[bool, typer.Option(help="Look twice, show it once, and end.")] = False,  # noqa: FBT002
) -> None:
    """A live view of the busiest buckets of a resource. Ends with Ctrl-C.

    Each look reads all buckets of the resource: an index query and batches of items.
    """
    run = session(context)
    before, since = _looked(run, resource)
    if once:
        time.sleep(interval)
        after, now = _looked(run, resource)
        rows = ranked(before, after, now - since)[:count]
        run.show([_row_data(row) for row in rows], frame(resource, rows, len(after)))
        return
    with Live(frame(resource, [], len(before)), console=run.console, auto_refresh=False) as live:
        try:
            while True:
                time.sleep(interval)
                after, now = _looked(run, resource)
                rows = ranked(before, after, now - since)[:count]
                live.update(frame(resource, rows, len(after)), refresh=True)
                before, since = after, now
        except KeyboardInterrupt:
            return


Look = dict[str, BucketState]
Row = tuple[BucketState, dict[str, float], float]


def _looked(run: Session, resource: str) -> tuple[Look, float]:
    found = run.limiter.resource_buckets(resource)
    return {bucket.entity_id: bucket for bucket in found}, time.monotonic()


def ranked(before: Look, after: Look, elapsed: float) -> list[Row]:
    """The buckets with their rates since the look before, the busiest first."""
    rows: list[Row] = []
    for entity_id, bucket in after.items():
        was = before.get(entity_id)
        drawn = {
            name: max(0, total - (was.drawn.get(name, 0) if was else 0)) / elapsed
            for name, total in bucket.drawn.items()
        }
        writes = max(0, bucket.writes - (was.writes if was else 0)) / elapsed
        rows.append((bucket, drawn, writes))
    return sorted(rows, key=lambda row: (-row[2], -row[0].utilization, row[0].entity_id))


def frame(resource: str, rows: list[Row], total: int) -> Table:
    """One picture."""
    title = f"{resource}: {total:,} bucket{'s' if total != 1 else ''} in use"
    table = output.grid(
        title,
        "entity",
        "writes/s",
        "limit",
        "drawn/s",
        "available",
        "",
        "mode",
        right=("writes/s", "drawn/s", "available"),
    )
    for bucket, drawn, writes in rows:
        for position, status in enumerate(bucket.limits):
            first = position == 0
            table.add_row(
                bucket.entity_id if first else "",
                f"{writes:,.1f}" if first else "",
                status.name,
                f"{drawn[status.name]:,.1f}",
                f"{status.available:,} of {status.capacity:,}",
                output.gauge(status.available, status.capacity, 16),
                output.mode_text(bucket.mode) if first else "",
            )
    return table


def _row_data(row: Row) -> dict[str, Any]:
    bucket, drawn, writes = row
    return {
        "entity_id": bucket.entity_id,
        "resource": bucket.resource,
        "mode": bucket.mode,
        "shards": bucket.shards,
        "writes_per_second": round(writes, 3),
        "drawn_per_second": {name: round(rate, 3) for name, rate in drawn.items()},
        "limits": [status.as_dict() for status in bucket.limits],
    }
