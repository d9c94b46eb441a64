"""The command's options, its commands, and what its failures mean to the shell."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated

import typer

from headgate.cli import buckets, entity, limits, namespace, resource
from headgate.cli.audit import audit
from headgate.cli.doctor import doctor
from headgate.cli.local import app as local
from headgate.cli.session import Session
from headgate.cli.top import top
from headgate.cli.usage import app as usage
from headgate.cli.version import migrate, version
from headgate.errors import (
    AccessDenied,
    EntityNotFound,
    HeadgateError,
    IncompatibleVersion,
    NamespaceNotFound,
    RateLimiterUnavailable,
    RateLimitExceeded,
    TableNotFound,
    ValidationError,
    VersionConflict,
)
from headgate.versions import CLIENT

# The first that fits says how the command ends.
EXIT_CODES: tuple[tuple[type[BaseException], int], ...] = (
    (RateLimitExceeded, 1),
    (TableNotFound, 5),
    (NamespaceNotFound, 5),
    (EntityNotFound, 5),
    (ValidationError, 2),
    (RateLimiterUnavailable, 3),
    (AccessDenied, 4),
    (VersionConflict, 6),
    (IncompatibleVersion, 6),
    (HeadgateError, 3),
    (OSError, 3),
)

EPILOG = (
    "Exit codes: 0 done · 1 rejected, or a check found something · 2 wrong usage or input · "
    "3 the table cannot be reached · 4 not allowed · 5 no such table, namespace or entity · "
    "6 changed by others, or another version."
)

app = typer.Typer(
    name="headgate",
    help="Operate a Headgate rate limiter: its limits, entities, buckets and their usage.",
    epilog=EPILOG,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)
app.command("acquire")(buckets.acquire)
app.command("check")(buckets.check)
app.command("status")(buckets.status)
app.add_typer(entity.app, name="entity")
app.add_typer(limits.app, name="limits")
app.add_typer(resource.app, name="resource")
app.add_typer(namespace.app, name="namespace")
app.command("audit")(audit)
app.add_typer(usage, name="usage")
app.command("top")(top)
app.command("doctor")(doctor)
app.add_typer(local, name="local")
app.command("version")(version)
app.command("migrate")(migrate)

# May stand anywhere on the line: they are moved to its front.
_WITH_VALUE = ("--table", "--namespace", "--region", "--endpoint-url", "--principal", "--save")
_FLAGS = ("--json",)


@app.callback()
def options(
    context: typer.Context,
    table: Annotated[
        str | None, typer.Option(envvar="HEADGATE_TABLE", help="The table's name.")
    ] = None,
    namespace: Annotated[
        str, typer.Option(envvar="HEADGATE_NAMESPACE", help="The namespace of the table.")
    ] = "default",
    region: Annotated[
        str | None, typer.Option(help="AWS region. By default as for any AWS tool.")
    ] = None,
    endpoint_url: Annotated[
        str | None,
        typer.Option(help="Another address for DynamoDB. By default as for any AWS tool."),
    ] = None,
    principal: Annotated[
        str | None,
        typer.Option(
            envvar="HEADGATE_PRINCIPAL",
            help="Who makes changes, for the audit. By default whose credentials these are.",
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Write JSON, for programs.")] = False,  # noqa: FBT002
    save: Annotated[
        Path | None, typer.Option(help="Also keep what is shown as a picture (SVG).")
    ] = None,
) -> None:
    """The options of all commands. They may stand before or after the command's name."""
    context.obj = Session(table, namespace, region, endpoint_url, principal, as_json, save)
    context.call_on_close(lambda: context.obj.close(f"headgate {context.invoked_subcommand}"))


def run(arguments: list[str]) -> None:
    """One run: errors are sentences, never tracebacks."""
    arguments = hoisted(arguments)
    if arguments == ["--version"]:
        sys.stdout.write(f"headgate {CLIENT}\n")
        return
    try:
        app(arguments, prog_name="headgate")
    except (HeadgateError, OSError) as error:
        code = next(code for kind, code in EXIT_CODES if isinstance(error, kind))
        if "--json" in arguments:
            told = {"error": type(error).__name__, "message": str(error), "exit_code": code}
            if isinstance(error, RateLimitExceeded):
                told = {**error.as_dict(), **told}
            sys.stderr.write(json.dumps(told) + "\n")
        else:
            sys.stderr.write(f"headgate: {error}\n")
        raise SystemExit(code) from None


def hoisted(arguments: list[str]) -> list[str]:
    """The options of all commands first, wherever they were written."""
    front: list[str] = []
    rest: list[str] = []
    words = iter(arguments)
    for word in words:
        if word == "--":
            rest += [word, *words]
        elif word in _FLAGS or word.startswith(tuple(f"{name}=" for name in _WITH_VALUE)):
            front.append(word)
        elif word in _WITH_VALUE:
            front += [word, *([value] if (value := next(words, None)) is not None else [])]
        else:
            rest.append(word)
    return front + rest
