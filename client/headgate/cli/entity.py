"""`headgate entity …`: who is limited, and what an operator does for or against them."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.text import Text

from headgate.cli import output, parse
from headgate.cli.session import Session, session
from headgate.errors import EntityNotFound, ValidationError
from headgate.limit import Mode
from headgate.operate import Operated
from headgate.records import Entity

app = typer.Typer(help="Entities: who is limited.", no_args_is_help=True)

Who = Annotated[str, typer.Argument(help="The entity's id.")]
Only = Annotated[str | None, typer.Option("--resource", help="On this resource only.")]
Key = Annotated[
    str | None,
    typer.Option("--key", help="Idempotency key: with the same one, it happens once in a day."),
]
Metadata = Annotated[
    list[str] | None, typer.Option("--metadata", "-m", help="NAME=VALUE; may be repeated.")
]


@app.command()
def create(
    context: typer.Context,
    entity_id: Who,
    parent: Annotated[str | None, typer.Option(help="The parent's id; it must exist.")] = None,
    cascade: Annotated[bool, typer.Option(help="Draw from the parent too.")] = False,  # noqa: FBT002
    name: Annotated[str | None, typer.Option(help="A name for people.")] = None,
    metadata: Metadata = None,
) -> None:
    """Record an entity. Needed only for a parent, a name or metadata."""
    run = session(context)
    made = run.limiter.create_entity(
        entity_id, parent_id=parent, cascade=cascade, name=name, metadata=_metadata(metadata)
    )
    _shown(run, made, "created")


@app.command("get")
def get_(context: typer.Context, entity_id: Who) -> None:
    """Show an entity's record."""
    run = session(context)
    found = run.limiter.get_entity(entity_id)
    if found is None:
        raise EntityNotFound(f"there is no entity {entity_id!r}")
    _shown(run, found, None)


@app.command()
def update(
    context: typer.Context,
    entity_id: Who,
    parent: Annotated[str | None, typer.Option(help="Another parent; '' for none.")] = None,
    cascade: Annotated[
        bool | None, typer.Option("--cascade/--no-cascade", help="Draw from the parent too.")
    ] = None,
    name: Annotated[str | None, typer.Option(help="Another name; '' for none.")] = None,
    metadata: Metadata = None,
) -> None:
    """Change what is given of an entity's record."""
    run = session(context)
    changes: dict[str, object] = {}
    if parent is not None:
        changes["parent_id"] = parent or None
    if name is not None:
        changes["name"] = name or None
    if cascade is not None:
        changes["cascade"] = cascade
    if metadata is not None:
        changes["metadata"] = _metadata(metadata)
    if not changes:
        raise ValidationError("nothing to change: give --parent, --cascade, --name or --metadata")
    _shown(run, run.limiter.update_entity(entity_id, **changes), "updated")  # type: ignore[arg-type]


@app.command()
def delete(context: typer.Context, entity_id: Who) -> None:
    """Remove an entity's record. Its limits and buckets stay."""
    run = session(context)
    if not run.limiter.delete_entity(entity_id):
        raise EntityNotFound(f"there is no entity {entity_id!r}")
    run.show({"deleted": entity_id}, Text(f"deleted entity {entity_id}"))


@app.command()
def children(context: typer.Context, entity_id: Who) -> None:
    """The entities whose parent this is."""
    run = session(context)
    _listed(run, run.limiter.list_children(entity_id))


@app.command("list")
def list_(context: typer.Context) -> None:
    """All entities that are recorded."""
    run = session(context)
    with run.notes.status("reading the namespace"):
        found = [record for record in run.limiter.everything() if isinstance(record, Entity)]
    _listed(run, found)


@app.command()
def disable(context: typer.Context, entity_id: Who, resource: Only = None) -> None:
    """Reject all that this entity asks for."""
    _switch(context, "disabled", entity_id, resource)


@app.command()
def bypass(context: typer.Context, entity_id: Who, resource: Only = None) -> None:
    """Admit all that this entity asks for, and keep counting: it may go into debt."""
    _switch(context, "bypass", entity_id, resource)


@app.command()
def enable(context: typer.Context, entity_id: Who, resource: Only = None) -> None:
    """Limit again: ends `disable` and `bypass`."""
    _switch(context, "normal", entity_id, resource)


@app.command()
def reset(
    context: typer.Context,
    entity_id: Who,
    resource: Annotated[str, typer.Argument(help="The resource.")],
    key: Key = None,
) -> None:
    """Make a bucket full again, debts gone."""
    run = session(context)
    done = run.limiter.reset(entity_id, resource, idempotency_key=key)
    _operated(run, done, f"reset {entity_id} on {resource}")


@app.command("top-up")
def top_up(
    context: typer.Context,
    entity_id: Who,
    resource: Annotated[str, typer.Argument(help="The resource.")],
    amounts: Annotated[list[str], typer.Argument(help="What to add, like `rpm=100`.")],
    key: Key = None,
) -> None:
    """Add tokens to a bucket, up to its capacity."""
    run = session(context)
    done = run.limiter.top_up(entity_id, resource, parse.amounts(amounts), idempotency_key=key)
    _operated(run, done, f"topped up {entity_id} on {resource}")


def _switch(context: typer.Context, mode: Mode, entity_id: str, resource: str | None) -> None:
    run = session(context)
    run.limiter.set_mode(mode, entity_id=entity_id, resource=resource)
    where = "all resources" if resource is None else resource
    told = "limited as usual" if mode == "normal" else mode
    run.show(
        {"entity_id": entity_id, "resource": resource, "mode": mode},
        Text(f"{entity_id} on {where}: {told}"),
    )


def _operated(run: Session, done: Operated, what: str) -> None:
    told = what if done.done else f"nothing to do: the key {done.key!r} was used for this before"
    held = ", ".join(f"{name} {amount:,}" for name, amount in done.available.items())
    run.show(
        {
            "done": done.done,
            "key": done.key,
            "shards": done.shards,
            "available": dict(done.available),
        },
        Text(f"{told}; it holds {held or 'all: the bucket is not in use'}"),
    )


def _metadata(words: list[str] | None) -> dict[str, str]:
    found: dict[str, str] = {}
    for word in words or ():
        name, equals, value = word.partition("=")
        if not equals:
            raise ValidationError(f"metadata is NAME=VALUE: {word!r}")
        found[name] = value
    return found


def _shown(run: Session, entity: Entity, done: str | None) -> None:
    run.show(
        output.entity_data(entity),
        output.pairs(
            None,
            {
                "entity": f"{entity.entity_id} ({done})" if done else entity.entity_id,
                "name": entity.name,
                "parent": entity.parent_id,
                "cascade": "yes" if entity.cascade else None,
                "metadata": ", ".join(f"{k}={v}" for k, v in entity.metadata.items()),
                "version": entity.version,
            },
        ),
    )


def _listed(run: Session, found: list[Entity]) -> None:
    table = output.grid(None, "entity", "name", "parent", "cascade")
    for entity in found:
        table.add_row(
            entity.entity_id,
            entity.name or "–",
            entity.parent_id or "–",
            "yes" if entity.cascade else "–",
        )
    run.show([output.entity_data(entity) for entity in found], table)
