"""`headgate acquire | check | status`: one bucket, as a caller would find it."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.text import Text

from headgate.cli import output, parse
from headgate.cli.session import session
from headgate.errors import LimitsNotFound

Entity = Annotated[str, typer.Argument(help="Who is limited.")]
Resource = Annotated[str, typer.Argument(help="What is limited.")]
Consume = Annotated[
    list[str],
    typer.Argument(help="Amounts by limit, like `rpm=1 tpm=500`, or an operation like `export`."),
]


def acquire(
    context: typer.Context,
    entity_id: Entity,
    resource: Resource,
    consume: Consume,
    wait: Annotated[
        float | None, typer.Option(help="Wait up to so many seconds for the tokens.")
    ] = None,
) -> None:
    """Take tokens, for good. Exits with 1 if they are not there."""
    run = session(context)
    with run.limiter.acquire(entity_id, resource, parse.consume(consume), max_wait=wait) as lease:
        taken = ", ".join(f"{amount:,} {name}" for name, amount in lease.consumed.items())
        run.show(
            {
                "admitted": True,
                "degraded": lease.degraded,
                "consumed": lease.consumed,
                "limits": [status.as_dict() for status in lease.limits],
            },
            Text(f"admitted: {taken}", style="green"),
            output.statuses(lease.limits),
        )


def check(context: typer.Context, entity_id: Entity, resource: Resource, consume: Consume) -> None:
    """Ask whether tokens could be taken, and take none. Exits with 1 if not."""
    run = session(context)
    result = run.limiter.check(entity_id, resource, parse.consume(consume))
    told = Text("would be admitted", style="green")
    if not result.allowed:
        told = Text("would be rejected", style="red")
        if result.mode == "normal" and result.retry_after is None:
            told.append("; waiting will not help")
        elif result.mode == "normal":
            told.append(f"; retry after {output.duration(result.retry_after)}")
    if result.mode != "normal":
        told.append(f" ({result.mode})")
    run.show(
        {
            "allowed": result.allowed,
            "retry_after": result.retry_after,
            "mode": result.mode,
            "limits": [status.as_dict() for status in result.limits],
        },
        told,
        output.statuses(result.limits, asked=True),
    )
    if not result.allowed:
        raise typer.Exit(1)


def status(context: typer.Context, entity_id: Entity) -> None:
    """All about an entity: its record, its limits, and where its buckets stand."""
    run = session(context)
    entity = run.limiter.get_entity(entity_id)
    configs = run.limiter.list_limits(entity_id=entity_id)
    buckets = run.limiter.entity_buckets(entity_id)
    data = {
        "entity_id": entity_id,
        "entity": output.entity_data(entity) if entity else None,
        "limits": [output.config_data(config) for config in configs],
        "buckets": [],
    }
    about: dict[str, object] = {"entity": entity_id}
    if entity is not None:
        about |= {
            "name": entity.name,
            "parent": entity.parent_id and f"{entity.parent_id}{' (cascades)' * entity.cascade}",
            "metadata": ", ".join(f"{k}={v}" for k, v in entity.metadata.items()),
        }
    modes = {config.mode for config in configs if config.resource is None}
    about["mode"] = next(iter(modes - {"normal"}), None)
    tables = [output.pairs(None, about)]
    for bucket in buckets:
        try:
            level = run.limiter.resolve_limits(entity_id, bucket.resource).level
        except LimitsNotFound:
            level = "call"
        origin = level.replace("_", " ")
        shards = f"{bucket.shards} shards, " if bucket.shards > 1 else ""
        mode = "" if bucket.mode == "normal" else f", {bucket.mode}"
        table = output.statuses(bucket.limits)
        table.title = f"{bucket.resource}  ({shards}limits of the {origin}{mode})"
        table.title_style, table.title_justify = "bold", "left"
        tables.append(table)
        data["buckets"].append(  # type: ignore[union-attr]
            {
                "resource": bucket.resource,
                "shards": bucket.shards,
                "mode": bucket.mode,
                "level": level,
                "limits": [limit.as_dict() for limit in bucket.limits],
            }
        )
    if not buckets:
        tables.append(output.pairs(None, {"buckets": "none in use: all are full"}))
    run.show(data, *tables)
