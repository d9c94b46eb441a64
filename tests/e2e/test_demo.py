"""`make demo`, as a newcomer runs it."""

from __future__ import annotations

import subprocess
import sys

import pytest

import engine


@pytest.mark.timeout(240)
def test_the_demo_deploys_limits_recovers_and_accounts_for_every_request():
    ran = subprocess.run(
        [sys.executable, "tools/demo.py"],
        cwd=engine.ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    for words in ("the bucket is full", "at once again", "refilled", "as promised"):
        assert words in ran.stdout
