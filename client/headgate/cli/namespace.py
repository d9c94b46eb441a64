"""`headgate namespace …`: the tenants of one table."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.text import Text

from headgate.cli import output
from headgate.cli.session import Session, session
from headgate.errors import NamespaceNotFound
from headgate.namespaces import Namespace

app = typer.Typer(help="Namespaces: tenants of one table.", no_args_is_help=True)

Name = Annotated[str, typer.Argument(help="The namespace's name.")]
Id = Annotated[str, typer.Argument(help="The namespace's id, as `orphans` lists it.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]
_AT_ONCE = 500


@app.command("list")
def list_(context: typer.Context) -> None:
    """The namespaces in use."""
    run = session(context)
    _listed(run, run.limiter.list_namespaces())


@app.command()
def register(context: typer.Context, name: Name) -> None:
    """Make a namespace, or find the one of this name."""
    run = session(context)
    _shown(run, run.limiter.register_namespace(name))


@app.command("get")
def get_(context: typer.Context, name: Name) -> None:
    """Show a namespace."""
    run = session(context)
    found = run.limiter.get_namespace(name)
    if found is None:
        raise NamespaceNotFound(f"there is no namespace {name!r}")
    _shown(run, found)


@app.command()
def delete(context: typer.Context, name: Name, yes: Yes = False) -> None:  # noqa: FBT002
    """Delete a namespace. It can be recovered until it is purged."""
    run = session(context)
    found = run.limiter.get_namespace(name)
    if found is None:
        raise NamespaceNotFound(f"there is no namespace {name!r}")
    run.confirmed(f"Delete the namespace {name!r}?", yes=yes)
    run.limiter.delete_namespace(name)
    run.show(
        {"deleted": name, "id": found.id},
        Text(f"deleted {name}; `headgate namespace recover {found.id}` brings it back"),
    )


@app.command()
def orphans(context: typer.Context) -> None:
    """Namespaces that were deleted and are not purged yet."""
    run = session(context)
    _listed(run, run.limiter.list_orphans())


@app.command()
def recover(context: typer.Context, id: Id) -> None:  # noqa: A002 - shown to users
    """Bring a deleted namespace back under its name."""
    run = session(context)
    _shown(run, run.limiter.recover_namespace(id))


@app.command()
def purge(context: typer.Context, id: Id, yes: Yes = False) -> None:  # noqa: A002, FBT002
    """Delete all that a deleted namespace held, for good. Can be interrupted and resumed."""
    run = session(context)
    run.confirmed(f"Delete everything of namespace {id!r} for good?", yes=yes)
    deleted = 0
    hidden = run.as_json or not run.notes.is_terminal
    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    with Progress(*columns, console=run.notes, disable=hidden) as progress:
        task = progress.add_task("purging", total=None)
        done = False
        while not done:
            purged = run.limiter.purge_namespace(id, limit=_AT_ONCE)
            deleted, done = deleted + purged.deleted, purged.done
            progress.update(task, description=f"purged {deleted:,} items")
    run.show({"purged": id, "items": deleted}, Text(f"purged {id}: {deleted:,} items"))


def _shown(run: Session, found: Namespace) -> None:
    run.show(
        asdict(found),
        output.pairs(None, {k.replace("_", " "): v for k, v in asdict(found).items()}),
    )


def _listed(run: Session, found: list[Namespace]) -> None:
    gone = any(namespace.deleted_at for namespace in found)
    table = output.grid(None, "namespace", "id", "created", *(("deleted",) if gone else ()))
    for namespace in found:
        row = [namespace.name, namespace.id, namespace.created_at[:19].replace("T", " ")]
        if gone:
            row.append((namespace.deleted_at or "–")[:19].replace("T", " "))
        table.add_row(*row)
    run.show([asdict(namespace) for namespace in found], table)
