"""Synthesis for tests: one Node process and one folder of assets for them all."""

from __future__ import annotations

import itertools
from pathlib import Path

import aws_cdk as cdk
import pytest

from headgate_cdk import RateLimiter
from tests.infra.templates import Template

HERE = Path(__file__).parent
names = itertools.count(1)


def pytest_collection_modifyitems(items):
    # Starting Node costs seconds: all of these share one worker, and so one process.
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.xdist_group("infra"))


@pytest.fixture(scope="session")
def outdir(tmp_path_factory):
    return tmp_path_factory.mktemp("cdk.out")


@pytest.fixture(scope="session")
def new_stack(outdir):
    """A stack in an app of its own."""

    def make(name=None, *, env=None, context=None):
        app = cdk.App(
            outdir=str(outdir),
            # Assets are used where they were staged: copying them proves nothing here.
            context={"aws:cdk:disable-asset-staging": True, **(context or {})},
        )
        return cdk.Stack(app, name or f"Stack{next(names)}", env=env)

    return make


@pytest.fixture
def stack(new_stack):
    return new_stack()


@pytest.fixture(scope="session")
def template_of():
    """The template of a stack, after synthesizing its app."""

    def synthesize(stack):
        assembly = cdk.Stage.of(stack).synth()
        return Template(assembly.get_stack_by_name(stack.stack_name).template)

    return synthesize


@pytest.fixture(scope="session")
def default(new_stack, template_of):
    """The template of a limiter with nothing but defaults."""
    stack = new_stack("Default")
    RateLimiter(stack, "Limiter")
    return template_of(stack)
