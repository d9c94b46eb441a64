"""The `headgate` command. Needs the `cli` extra: `pip install 'headgate[cli]'`."""

from __future__ import annotations

import sys


def main() -> None:
    """The command's entry."""
    try:
        import rich  # noqa: F401, PLC0415 - the extra may not be there
        import typer  # noqa: F401, PLC0415
        import yaml  # noqa: F401, PLC0415
    except ImportError as error:
        sys.stderr.write(
            f"headgate: {error.name} is missing. The command needs the extra: "
            "pip install 'headgate[cli]'\n"
        )
        raise SystemExit(2) from None
    from headgate.cli.app import run  # noqa: PLC0415

    run(sys.argv[1:])
