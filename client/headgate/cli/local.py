"""`headgate local up | down`: an engine on this machine, with the table made."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from headgate import local
from headgate.cli.session import session

app = typer.Typer(help="An engine on this machine.", no_args_is_help=True)

Folder = Annotated[
    Path | None,
    typer.Option(envvar="HEADGATE_LOCAL", help="Where its files are; by default in your cache."),
]


@app.command()
def up(
    context: typer.Context,
    port: Annotated[int, typer.Option(help="Its port; by default a free one.")] = 0,
    folder: Folder = None,
) -> None:
    """Start the engine, make the table, and print the environment that leads there.

    In a shell: eval "$(headgate local up)"
    """
    run = session(context)
    with run.notes.status("starting"):
        running = local.up(
            run.table or "limits", port=port, folder=folder or local.default_folder()
        )
    environment = running.environment()
    if run.as_json:
        run.show({"endpoint_url": running.endpoint_url, "pid": running.pid, **environment})
        return
    sys.stdout.writelines(f"export {name}={value}\n" for name, value in environment.items())
    run.say(f"running at {running.endpoint_url}; `headgate local down` ends it")


@app.command()
def down(context: typer.Context, folder: Folder = None) -> None:
    """End the engine. What it held is gone."""
    run = session(context)
    ended = local.down(folder or local.default_folder())
    run.show({"ended": ended}, "ended" if ended else "nothing was running")
