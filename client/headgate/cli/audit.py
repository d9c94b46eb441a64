"""`headgate audit`: who changed what, when."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headgate.cli import output, parse
from headgate.cli.session import session
from headgate.journal import AuditEvent

if TYPE_CHECKING:
    from rich.table import Table


def audit(
    context: typer.Context,
    entity: Annotated[str | None, typer.Option(help="About this entity.")] = None,
    resource: Annotated[str | None, typer.Option(help="About this resource's limits.")] = None,
    of_namespace: Annotated[str | None, typer.Option(help="About this namespace.")] = None,
    since: Annotated[str | None, typer.Option(help="From then on: 2h, 7d, 2026-01-31.")] = None,
    until: Annotated[str | None, typer.Option(help="Before then.")] = None,
    limit: Annotated[int, typer.Option(min=1, max=1000, help="How many.")] = 50,
    cursor: Annotated[str | None, typer.Option(help="Where the page before ended.")] = None,
) -> None:
    """List changes, the newest first: of an entity, a resource, a namespace, or of the system."""
    run = session(context)
    page = run.limiter.get_audit_events(
        entity_id=entity,
        resource=resource,
        namespace=of_namespace,
        start=parse.moment(since),
        end=parse.moment(until),
        limit=limit,
        cursor=cursor,
    )
    data = {"events": [_data(event) for event in page.events], "cursor": page.cursor}
    run.show(data, _table(page.events))
    if page.cursor:
        run.say(f"there are more: --cursor {page.cursor}")


def _table(events: tuple[AuditEvent, ...]) -> Table:
    table = output.grid(None, "when (UTC)", "who", "what", "change")
    table.columns[1].overflow = table.columns[3].overflow = "fold"
    for column in (table.columns[1], table.columns[3]):
        column.no_wrap = False
    for event in events:
        on = f" ({event.resource})" if event.resource else ""
        table.add_row(
            output.clock(event.at),
            event.principal or "–",
            f"{event.action.replace('_', ' ')}{on}",
            difference(event.before or {}, event.after or {}),
        )
    return table


def difference(before: Mapping[str, Any], after: Mapping[str, Any]) -> str:
    """What is not as it was, a line for each."""
    was, now = _flat(before), _flat(after)
    lines = []
    for name in sorted({*was, *now}):
        old, new = was.get(name), now.get(name)
        if old != new:
            lines.append(
                f"{name} {old} → {new}"
                if name in was and name in now
                else f"+ {name} {new}"
                if name in now
                else f"- {name} {old}"
            )
    return "\n".join(lines) or "–"


def _flat(value: Mapping[str, Any], prefix: str = "") -> dict[str, str]:
    found: dict[str, str] = {}
    for name, inner in value.items():
        if isinstance(inner, Mapping) and inner:
            found |= _flat(inner, f"{prefix}{name}.")
        elif inner not in (None, {}, []):
            found[prefix + name] = inner if isinstance(inner, str) else json.dumps(inner)
    return found


def _data(event: AuditEvent) -> dict[str, Any]:
    return {
        "event_id": event.event_id,
        "at": event.at.isoformat(),
        "subject": event.subject,
        "action": event.action,
        "principal": event.principal,
        "resource": event.resource,
        "before": event.before,
        "after": event.after,
    }
