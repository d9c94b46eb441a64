"""`headgate usage list | summary | plot`: what was used, by the hour, day or month."""

from __future__ import annotations

import sys
from collections import defaultdict
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any

import typer

from headgate.cli import output, parse
from headgate.cli.plot import Series, bars, png, svg
from headgate.cli.session import Session, session
from headgate.errors import ValidationError
from headgate.usage import UsageSnapshot, Window, checked_window, window_end, window_start

app = typer.Typer(help="Usage, as the aggregator counts it.", no_args_is_help=True)

Entity = Annotated[str | None, typer.Option(help="Of this entity.")]
Resource = Annotated[str | None, typer.Option(help="Of this resource.")]
Size = Annotated[str, typer.Option("--window", help="hourly, daily or monthly.")]
Since = Annotated[str | None, typer.Option(help="From then on: 24h, 7d, 2026-01-31.")]
Until = Annotated[str | None, typer.Option(help="Before then.")]
_MOST = 10_000
_LABELS: dict[Window, str] = {"hourly": "%m-%d %H:00", "daily": "%Y-%m-%d", "monthly": "%Y-%m"}


@app.command("list")
def list_(
    context: typer.Context,
    entity: Entity = None,
    resource: Resource = None,
    window: Size = "hourly",
    since: Since = None,
    until: Until = None,
    limit: Annotated[int, typer.Option(min=1, max=1000, help="How many.")] = 50,
    cursor: Annotated[str | None, typer.Option(help="Where the page before ended.")] = None,
) -> None:
    """Snapshots in order of time."""
    run = session(context)
    page = run.limiter.get_usage_snapshots(
        entity_id=entity,
        resource=resource,
        window=checked_window(window),
        start=parse.moment(since),
        end=parse.moment(until),
        limit=limit,
        cursor=cursor,
    )
    table = output.grid(None, "window (UTC)", "entity", "resource", "used", "acquires")
    for snapshot in page.snapshots:
        table.add_row(
            output.clock(snapshot.start),
            snapshot.entity_id,
            snapshot.resource,
            _used(snapshot.consumed),
            f"{snapshot.acquires:,}",
        )
    data = {"snapshots": [_data(snapshot) for snapshot in page.snapshots], "cursor": page.cursor}
    run.show(data, table)
    if page.cursor:
        run.say(f"there are more: --cursor '{page.cursor}'")


@app.command()
def summary(
    context: typer.Context,
    entity: Entity = None,
    resource: Resource = None,
    window: Size = "hourly",
    since: Since = None,
    until: Until = None,
) -> None:
    """Many snapshots added up."""
    run = session(context)
    found = run.limiter.get_usage_summary(
        entity_id=entity,
        resource=resource,
        window=checked_window(window),
        start=parse.moment(since),
        end=parse.moment(until),
    )
    data = {
        "window": found.window,
        "snapshots": found.snapshots,
        "first": found.first,
        "last": found.last,
        "consumed": found.consumed,
        "average": found.average if found.snapshots else {},
        "acquires": found.acquires,
    }
    average = (
        {name: round(value, 1) for name, value in found.average.items()} if found.snapshots else {}
    )
    run.show(
        data,
        output.pairs(
            None,
            {
                "snapshots": f"{found.snapshots} {found.window}",
                "from": found.first and output.clock(found.first),
                "to": found.last and output.clock(found.last),
                "used": _used(found.consumed),
                "average": ", ".join(f"{value:,} {name}" for name, value in average.items()),
                "acquires": f"{found.acquires:,}",
            },
        ),
    )


@app.command()
def plot(
    context: typer.Context,
    entity: Entity = None,
    resource: Resource = None,
    limit: Annotated[
        str | None, typer.Option(help="Of this limit; by default the first there is.")
    ] = None,
    window: Size = "hourly",
    since: Since = None,
    until: Until = None,
    result: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="Draw into this file instead: .svg or .png."),
    ] = None,
) -> None:
    """A chart of usage over time, in the terminal, or as SVG or PNG."""
    run = session(context)
    size = checked_window(window)
    if result is not None and result.suffix not in (".svg", ".png"):
        raise ValidationError(f"--output draws .svg or .png: {str(result)!r}")
    found = _all(run, entity, resource, size, since, until)
    names = sorted({name for snapshot in found for name in snapshot.consumed})
    if not names:
        raise ValidationError("there is no usage to plot: is the aggregator deployed?")
    name = limit or names[0]
    if name not in names:
        raise ValidationError(f"no usage of limit {name!r}: there is {', '.join(names)}")
    whose = " on ".join(part for part in (entity, resource) if part)
    series = _series(f"{name} of {whose}, {size}", found, name, size)
    points = [{"start": label, "used": value} for label, value in series.points]
    if result is None:
        run.show({"limit": name, "window": size, "points": points}, bars(series))
        return
    result.write_bytes(png(series) if result.suffix == ".png" else svg(series).encode())
    run.show({"limit": name, "window": size, "points": points, "file": str(result)})
    if not run.as_json:
        sys.stdout.write(f"wrote {result}\n")


def _all(
    run: Session,
    entity: str | None,
    resource: str | None,
    window: Window,
    since: str | None,
    until: str | None,
) -> list[UsageSnapshot]:
    found: list[UsageSnapshot] = []
    cursor: str | None = None
    with run.notes.status("reading usage"):
        while len(found) < _MOST:
            page = run.limiter.get_usage_snapshots(
                entity_id=entity,
                resource=resource,
                window=window,
                start=parse.moment(since),
                end=parse.moment(until),
                limit=1000,
                cursor=cursor,
            )
            found += page.snapshots
            cursor = page.cursor
            if cursor is None:
                break
    return found


def _series(title: str, found: list[UsageSnapshot], name: str, window: Window) -> Series:
    """One value for each window, those without usage included."""
    totals: dict[datetime, int] = defaultdict(int)
    for snapshot in found:
        totals[snapshot.start] += snapshot.consumed.get(name, 0)
    at, last = window_start(window, min(totals)), max(totals)
    points = []
    while at <= last:
        points.append((at.strftime(_LABELS[window]), totals.get(at, 0)))
        at = window_end(window, at)
    return Series(title, tuple(points))


def _used(consumed: dict[str, int]) -> str:
    return ", ".join(f"{amount:,} {name}" for name, amount in consumed.items()) or "–"


def _data(snapshot: UsageSnapshot) -> dict[str, Any]:
    return {
        "entity_id": snapshot.entity_id,
        "resource": snapshot.resource,
        "window": snapshot.window,
        "start": snapshot.start.isoformat(),
        "end": snapshot.end.isoformat(),
        "consumed": snapshot.consumed,
        "acquires": snapshot.acquires,
    }
