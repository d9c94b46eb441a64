"""`headgate limits …`: by hand, and as code."""

from __future__ import annotations

import difflib
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer
import yaml
from rich.text import Text

from headgate.cli import document, output, parse
from headgate.cli.session import Session, session
from headgate.core import OnUnavailable, policy
from headgate.declared import Plan, apply_all, plan_all
from headgate.provision import Action, Change, OperationCosts, Record
from headgate.records import LimitsConfig

app = typer.Typer(help="Limits: by hand, and as code.", no_args_is_help=True)

Entity = Annotated[str | None, typer.Option(help="Of this entity.")]
Resource = Annotated[str | None, typer.Option(help="Of this resource.")]
File = Annotated[Path, typer.Argument(exists=True, dir_okay=False, help="The YAML file.")]
_SIGNS = {
    Action.CREATE: ("+", "green"),
    Action.UPDATE: ("~", "yellow"),
    Action.DELETE: ("-", "red"),
}


@app.command("set")
def set_(
    context: typer.Context,
    limits: Annotated[
        list[str], typer.Argument(help="NAME=AMOUNT/PERIOD[,burst=AMOUNT], like `rpm=600/minute`.")
    ],
    entity: Entity = None,
    resource: Resource = None,
    on_unavailable: Annotated[
        str | None, typer.Option(help="allow or block; with the system's limits only.")
    ] = None,
) -> None:
    """Store the limits of a level: of an entity, a resource, both together, or of the system."""
    run = session(context)
    chosen: OnUnavailable | None = None if on_unavailable is None else policy(on_unavailable)
    stored = run.limiter.set_limits(
        [parse.limit(word) for word in limits],
        entity_id=entity,
        resource=resource,
        on_unavailable=chosen,
    )
    run.show(output.config_data(stored), output.configs([stored]))


@app.command("get")
def get_(context: typer.Context, entity: Entity = None, resource: Resource = None) -> None:
    """What is stored at exactly one level."""
    run = session(context)
    found = run.limiter.get_limits(entity_id=entity, resource=resource)
    if found is None:
        run.show(None, Text("nothing is stored at this level"))
        raise typer.Exit(1)
    run.show(output.config_data(found), output.configs([found]))


@app.command("list")
def list_(context: typer.Context, entity: Entity = None, resource: Resource = None) -> None:
    """Stored limits: of an entity, of a resource and its entities, or of system and resources."""
    run = session(context)
    found = run.limiter.list_limits(entity_id=entity, resource=resource)
    run.show([output.config_data(config) for config in found], output.configs(found))


@app.command()
def delete(context: typer.Context, entity: Entity = None, resource: Resource = None) -> None:
    """Remove the limits of a level. Then the next level answers."""
    run = session(context)
    gone = run.limiter.delete_limits(entity_id=entity, resource=resource)
    run.show({"deleted": gone}, Text("deleted" if gone else "there were none"))


@app.command()
def resolve(
    context: typer.Context,
    entity_id: Annotated[str, typer.Argument(help="Who is limited.")],
    resource: Annotated[str, typer.Argument(help="What is limited.")],
) -> None:
    """The limits in force for an entity and a resource, and where they come from."""
    run = session(context)
    found = run.limiter.resolve_limits(entity_id, resource)
    table = output.grid(f"limits of the {found.level.replace('_', ' ')}", "limit", "rate")
    for limit in found.limits:
        table.add_row(limit.name, output.limit_text(limit))
    data: dict[str, Any] = {
        "level": found.level,
        "mode": found.mode,
        "on_unavailable": found.on_unavailable,
        "limits": {limit.name: document.limit_body(limit) for limit in found.limits},
    }
    mode = {} if found.mode == "normal" else {"mode": output.mode_text(found.mode)}
    run.show(data, table, *([output.pairs(None, mode)] if mode else []))


@app.command()
def plan(context: typer.Context, file: File) -> None:
    """Show what `apply` would change. Nothing is changed."""
    run = session(context)
    _show_plan(run, _planned(run, document.load(file)))


@app.command()
def apply(
    context: typer.Context,
    file: File,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,  # noqa: FBT002
) -> None:
    """Make the stored limits what the file says. What others stored is left alone.

    If any change fails, those before it are taken back.
    """
    run = session(context)
    planned = _planned(run, document.load(file))
    if not run.as_json:
        _show_plan(run, planned)
    if not planned.empty:
        run.confirmed("Apply these changes?", yes=yes)
    with run.notes.status("applying") as status:
        apply_all(run.limiter, planned, lambda change: status.update(f"{change.address}"))
    told = "Nothing to do." if planned.empty else f"Applied: {_summary(planned, done=True)}."
    run.show(_plan_data(planned), Text(told))


@app.command()
def diff(context: typer.Context, file: File) -> None:
    """Compare the file with what is stored, whoever stored it. Exits with 1 if they differ."""
    run = session(context)
    wanted = document.load(file)
    known = {namespace.name for namespace in run.limiter.list_namespaces()}
    stored = {
        name: run.limiter.namespace(name).everything() if name in known else []
        for name in wanted.namespaces
    }
    before = document.dump(wanted.owner, {n: _ordered(r) for n, r in stored.items()})
    after = document.dump(wanted.owner, {n: _ordered(r) for n, r in wanted.namespaces.items()})
    lines = list(
        difflib.unified_diff(
            before.splitlines(), after.splitlines(), "stored", str(file), lineterm=""
        )
    )
    styles = {"+": "green", "-": "red", "@": "cyan"}
    texts = [Text(line, style=styles.get(line[0], "")) for line in lines if line]
    run.show({"equal": not lines, "diff": lines}, *(texts or [Text("no differences")]))
    if lines:
        raise typer.Exit(1)


@app.command()
def export(
    context: typer.Context,
    names: Annotated[
        list[str] | None, typer.Argument(help="Namespaces; by default the one in use.")
    ] = None,
    owner: Annotated[str, typer.Option(help="The owner that the file names.")] = "limits-file",
) -> None:
    """Write what is stored as a file that `plan` finds nothing to do for."""
    run = session(context)
    found = {}
    with run.notes.status("reading"):
        for name in names or [run.namespace]:
            found[name] = _ordered(run.limiter.namespace(name).everything())
    text = document.dump(owner, found)
    if run.as_json:
        run.show(yaml.safe_load(text))
    else:
        sys.stdout.write(text)


@app.command("schema")
def schema_() -> None:
    """The JSON Schema of the file, for editors and CI."""
    sys.stdout.write(json.dumps(document.schema(), indent=2) + "\n")


def _planned(run: Session, wanted: document.Document) -> Plan:
    with run.notes.status("reading what is stored"):
        return plan_all(run.limiter, wanted.namespaces, wanted.owner)


def _ordered(records: Any) -> list[Record]:
    def place(record: Record) -> tuple[str, str, str]:
        who = getattr(record, "entity_id", None) or ""
        return who, getattr(record, "resource", None) or "", type(record).__name__

    return sorted(records, key=place)


def _show_plan(run: Session, planned: Plan) -> None:
    lines: list[Text] = []
    for part in planned.parts:
        if part.action is not None:
            sign, style = _SIGNS[part.action]
            note = " (can be recovered)" if part.action is Action.DELETE else ""
            lines.append(Text(f"{sign} namespace {part.namespace!r}{note}", style=style))
        for change in part.changes:
            lines += _change_lines(part.namespace, change)
    if planned.empty:
        lines = [Text("No changes: what is stored is what is written down.")]
    else:
        lines.append(Text(f"Plan: {_summary(planned)}.", style="bold"))
    run.show(_plan_data(planned), *lines)


def _change_lines(namespace: str, change: Change) -> list[Text]:
    sign, style = _SIGNS[change.action]
    lines = [Text(f"{sign} {change.address} in {namespace!r}", style=style)]
    before, after = _fields(change.before), _fields(change.after)
    for name in dict.fromkeys([*before, *after]):
        old, new = before.get(name), after.get(name)
        if old == new:
            continue
        text = f"{old} → {new}" if old and new else (new or old or "")
        lines.append(Text(f"    {name}: {text}", style=style))
    return lines


def _fields(record: Record | None) -> dict[str, str]:
    """What a record holds, as the file would say it, by name."""
    if record is None:
        return {}
    if isinstance(record, LimitsConfig):
        shown = {limit.name: _words(document.limit_body(limit)) for limit in record.limits}
        policy_ = {"on_unavailable": record.on_unavailable} if record.on_unavailable else {}
        return {**shown, **policy_}
    if isinstance(record, OperationCosts):
        return {name: _words(taken) for name, taken in sorted(record.costs.items())}
    fields = {
        "parent": record.parent_id or "",
        "cascade": "yes" if record.cascade else "",
        "name": record.name or "",
        "metadata": _words(record.metadata),
    }
    return {name: value for name, value in fields.items() if value}


def _words(values: Mapping[str, object]) -> str:
    return ", ".join(f"{name} {value}" for name, value in values.items())


def _summary(planned: Plan, *, done: bool = False) -> str:
    counts = dict.fromkeys(Action, 0)
    for _, change in planned.changes:
        counts[change.action] += 1
    for part in planned.parts:
        if part.action is not None:
            counts[part.action] += 1
    if done:
        return ", ".join(f"{count} {action.value}d" for action, count in counts.items())
    return ", ".join(f"{count} to {action.value}" for action, count in counts.items())


def _plan_data(planned: Plan) -> dict[str, Any]:
    return {
        "owner": planned.owner,
        "namespaces": {
            part.namespace: part.action.value for part in planned.parts if part.action is not None
        },
        "changes": [
            {
                "namespace": namespace,
                "action": change.action.value,
                "what": str(change.address),
                "before": _fields(change.before) or None,
                "after": _fields(change.after) or None,
            }
            for namespace, change in planned.changes
        ],
    }
