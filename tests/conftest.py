"""What every test gets: dummy credentials, Hypothesis profiles, the engines."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

import engine

if TYPE_CHECKING:
    from collections.abc import Iterator

# Nothing listens there: a test that asks for no engine cannot reach AWS by accident.
NOWHERE = "http://127.0.0.1:9"

# Set on import, before any module under test looks at its environment.
os.environ.pop("AWS_PROFILE", None)
os.environ.update(engine.environment(NOWHERE))
# moto answers only requests that are addressed to AWS itself.
del os.environ["AWS_ENDPOINT_URL"]

# Shared machines make deadlines lie; a failure prints what replays it.
settings.register_profile("ci", deadline=None, print_blob=True, derandomize=False)
settings.register_profile(
    "thorough",
    parent=settings.get_profile("ci"),
    max_examples=5_000,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))


@pytest.fixture(scope="session")
def ministack() -> Iterator[engine.Engine]:
    """One ministack for each worker: tests that share it use tables of their own."""
    with engine.ministack() as running:
        yield running


@pytest.fixture(scope="session")
def dynalite() -> Iterator[engine.Engine]:
    """One dynalite for each worker."""
    with engine.dynalite() as running:
        yield running
