"""What every command has: options that name a table, a limiter on it, somewhere to write."""

from __future__ import annotations

import json
import os
import re
import sys
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import typer
from rich.console import Console, RenderableType
from rich.table import Table

from headgate.cli.flows import Operator
from headgate.errors import ValidationError

DEFAULT_WIDTH = 100  # where there is no terminal to ask


@dataclass
class Session:
    """One run of the command."""

    table: str | None = None
    namespace: str = "default"
    region: str | None = None
    endpoint_url: str | None = None
    principal: str | None = None
    as_json: bool = False
    save: Path | None = None

    @cached_property
    def limiter(self) -> Operator:
        """A limiter on the table, in the namespace that was named."""
        if not self.table:
            raise ValidationError(
                "which table? Give --table, or set HEADGATE_TABLE. Without one, "
                "`headgate local up` makes one here"
            )
        return Operator(
            self.table,
            namespace=self.namespace,
            region=self.region,
            endpoint_url=self.endpoint_url,
            principal=self.principal,
            # A person waits longer than a request may.
            connect_timeout=3.0,
            read_timeout=10.0,
        )

    @cached_property
    def console(self) -> Console:
        """Where tables go."""
        width = None if sys.stdout.isatty() else int(os.environ.get("COLUMNS", DEFAULT_WIDTH))
        return Console(width=width, highlight=False, record=self.save is not None)

    @cached_property
    def notes(self) -> Console:
        """Where progress and questions go: what is written to the other can be piped."""
        return Console(stderr=True, highlight=False)

    def show(self, data: Any, *tables: RenderableType) -> None:
        """Data for programs, or the same as tables for people."""
        if self.as_json:
            sys.stdout.write(json.dumps(data, indent=2, default=str) + "\n")
            return
        for table in tables:
            empty = isinstance(table, Table) and table.columns and not table.rows
            self.console.print("none" if empty else table)

    def say(self, text: str) -> None:
        """A remark for people."""
        if not self.as_json:
            self.notes.print(text, highlight=False)

    def confirmed(self, question: str, *, yes: bool) -> None:
        """Goes on only if that is meant."""
        if yes:
            return
        if not sys.stdin.isatty():
            raise ValidationError(f"{question} Say --yes: there is nobody to ask here")
        typer.confirm(question, abort=True, err=True)

    def close(self, title: str) -> None:
        """Lets go of connections, and keeps a picture of what was shown if that was asked for."""
        if self.save is not None:
            self.save.write_text(_described(self.console.export_svg(title=title), title))
        if "limiter" in self.__dict__:
            self.limiter.close()


def _described(svg: str, title: str) -> str:
    """A picture that says what it is to those who cannot see it."""
    # Nobody who opens it is to fetch a font from elsewhere.
    svg = re.sub(r"@font-face \{.*?\}|<!--.*?-->", "", svg, flags=re.DOTALL)
    end = svg.index(">") + 1
    told = f"\n<title>{title}</title>\n<desc>What the command {title!r} shows</desc>"
    return svg[:end] + told + svg[end:]


def session(context: typer.Context) -> Session:
    """The run that a command belongs to."""
    found = context.find_root().obj
    assert isinstance(found, Session)
    return found
