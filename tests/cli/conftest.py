from __future__ import annotations

import json
import os
import subprocess
import uuid
from types import SimpleNamespace

import pytest

import engine
from tests.cli.shell import BIN
from tests.limiters import create_table


@pytest.fixture
def table(ministack):
    name = f"table-{uuid.uuid4().hex}"
    create_table(name, ministack.endpoint_url)
    return name


@pytest.fixture
def headgate(ministack, table, tmp_path):
    """The command, as a user runs it."""

    def run(*words, **environment):
        done = subprocess.run(
            [BIN / "headgate", *map(str, words)],
            env={
                **os.environ,
                **engine.environment(ministack.endpoint_url),
                "HEADGATE_TABLE": table,
                "COLUMNS": "120",
                **environment,
            },
            cwd=tmp_path,
            capture_output=True,
            stdin=subprocess.DEVNULL,
            text=True,
            check=False,
        )
        assert "Traceback" not in done.stderr, done.stderr
        return SimpleNamespace(code=done.returncode, out=done.stdout, err=done.stderr)

    def told(*words, **environment):
        """What a program is told."""
        done = run(*words, "--json", **environment)
        assert done.code == 0, done.err
        return json.loads(done.out)

    run.told = told
    return run
