"""`headgate resource …`: what is limited."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.text import Text

from headgate.cli import output, parse
from headgate.cli.session import session
from headgate.errors import ValidationError
from headgate.limit import Mode

app = typer.Typer(help="Resources: what is limited.", no_args_is_help=True)
costs_app = typer.Typer(help="What named operations take.", no_args_is_help=True)
app.add_typer(costs_app, name="costs")

What = Annotated[str, typer.Argument(help="The resource's name.")]


@app.command("list")
def list_(context: typer.Context) -> None:
    """The resources that have limits, costs or a mode of their own."""
    run = session(context)
    found = [config for config in run.limiter.list_limits() if config.resource is not None]
    run.show([output.config_data(config) for config in found], output.configs(found))


@app.command()
def status(
    context: typer.Context,
    resource: What,
    limit: Annotated[int, typer.Option(min=1, max=1000, help="How many buckets.")] = 20,
) -> None:
    """How full the buckets of a resource are."""
    run = session(context)
    found = run.limiter.get_resource_capacity(resource, limit=limit)
    table = output.grid(
        f"{resource}: {len(found.buckets)} buckets{' of more' if found.cursor else ''}",
        "entity",
        "limit",
        "available",
        "",
        "shards",
        right=("available", "shards"),
    )
    for bucket in found.buckets:
        for status in bucket.limits:
            table.add_row(
                bucket.entity_id,
                status.name,
                f"{status.available:,} of {status.capacity:,}",
                output.gauge(status.available, status.capacity),
                str(bucket.shards),
            )
    data = {
        "resource": resource,
        "buckets": [
            {
                "entity_id": bucket.entity_id,
                "shards": bucket.shards,
                "limits": [status.as_dict() for status in bucket.limits],
            }
            for bucket in found.buckets
        ],
        "cursor": found.cursor,
    }
    run.show(data, table)


@app.command()
def disable(context: typer.Context, resource: What) -> None:
    """Reject all that is asked of this resource, whoever asks."""
    _switch(context, "disabled", resource)


@app.command()
def bypass(context: typer.Context, resource: What) -> None:
    """Admit all that is asked of this resource, and keep counting."""
    _switch(context, "bypass", resource)


@app.command()
def enable(context: typer.Context, resource: What) -> None:
    """Limit again: ends `disable` and `bypass`."""
    _switch(context, "normal", resource)


@costs_app.command("show")
def costs_show(context: typer.Context, resource: What) -> None:
    """The operations of a resource and what each takes."""
    run = session(context)
    config = run.limiter.get_limits(resource=resource)
    costs = output.plain(config.costs) if config else {}
    table = output.grid(None, "operation", "takes")
    for operation, taken in sorted(costs.items()):
        table.add_row(operation, ", ".join(f"{n} {name}" for name, n in taken.items()))
    run.show(costs, table)


@costs_app.command("set")
def costs_set(
    context: typer.Context,
    resource: What,
    operation: Annotated[str, typer.Argument(help="The operation's name.")],
    amounts: Annotated[
        list[str] | None, typer.Argument(help="What it takes, like `rpm=1 units=100`.")
    ] = None,
) -> None:
    """Set what an operation takes. Without amounts, remove it."""
    run = session(context)
    config = run.limiter.get_limits(resource=resource)
    costs = output.plain(config.costs) if config else {}
    if amounts:
        costs[operation] = parse.amounts(amounts)
    elif costs.pop(operation, None) is None:
        raise ValidationError(
            f"no operation {operation!r} on resource {resource!r}: the operations here are "
            f"{', '.join(sorted(costs)) or 'none'}"
        )
    run.limiter.set_costs(costs, resource=resource)
    run.show(costs, Text(f"{resource}: {', '.join(sorted(costs)) or 'no operations'}"))


def _switch(context: typer.Context, mode: Mode, resource: str) -> None:
    run = session(context)
    with run.notes.status("reaching the buckets of the resource"):
        run.limiter.set_mode(mode, resource=resource)
    told = "limited as usual" if mode == "normal" else mode
    run.show({"resource": resource, "mode": mode}, Text(f"{resource}: {told}"))
