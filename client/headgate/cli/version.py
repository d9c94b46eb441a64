"""`headgate version | migrate`: do this client and the table fit together?"""

from __future__ import annotations

from typing import Annotated

import typer
from rich.text import Text

from headgate.cli import output
from headgate.cli.session import session
from headgate.versions import CLIENT, SCHEMA


def version(
    context: typer.Context,
    require: Annotated[
        str | None,
        typer.Option(help="Ask clients to be at least this version; '' asks for none."),
    ] = None,
) -> None:
    """The version of this client, and of the namespace if there is a table to ask."""
    run = session(context)
    data: dict[str, object] = {"client": CLIENT, "client_schema": SCHEMA}
    if run.table:
        found = run.limiter.get_version()
        if require is not None:
            found = run.limiter.require_client(require or None)
        data |= {"schema": found.schema, "client_minimum": found.client_minimum}
    run.show(
        data,
        output.pairs(
            None,
            {
                "client": f"headgate {CLIENT}, schema {SCHEMA}",
                "namespace": f"{run.namespace}, schema {data['schema']}" if run.table else None,
                "asks for": data.get("client_minimum") and f"headgate {data['client_minimum']}",
            },
        ),
    )


def migrate(context: typer.Context) -> None:
    """Bring the namespace's items to this client's schema. Can be interrupted and resumed."""
    run = session(context)
    with run.notes.status("migrating"):
        start, end = run.limiter.migrate()
    told = f"schema {end} already" if start == end else f"from schema {start} to {end}"
    run.show({"from": start, "to": end}, Text(f"{run.namespace}: {told}"))
