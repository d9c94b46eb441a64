"""The README's code runs: the stack synthesizes, the function limits."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from types import SimpleNamespace

import pytest

from headgate import Limit, SyncRateLimiter
from tests.docs.examples import ROOT, python_blocks

IMPORTS, ATTACHES, ACQUIRES = python_blocks("README.md")


@pytest.mark.xdist_group("infra")  # shares one Node process with the construct's tests
def test_the_stack_has_the_limiter_its_limits_and_a_function_that_is_attached(
    tmp_path, monkeypatch
):
    monkeypatch.chdir(ROOT)
    names = {"OUT": str(tmp_path)}
    replace(IMPORTS, code=IMPORTS.code.replace("App()", "App(outdir=OUT)")).run(names)
    ATTACHES.run(names)
    resources = names["app"].synth().get_stack_by_name("Chat").template["Resources"].values()
    kinds = [resource["Type"] for resource in resources]
    assert "AWS::DynamoDB::Table" in kinds
    assert "Custom::HeadgateLimits" in kinds
    (function,) = [
        resource["Properties"]
        for resource in resources
        if resource["Properties"].get("Handler") == "handler.handler"
    ]
    assert function["Layers"]
    assert "HEADGATE_TABLE" in function["Environment"]["Variables"]


def test_the_function_answers_until_it_is_limited(table):
    with SyncRateLimiter(table) as limiter:
        limits = [Limit.per_day("rpm", 2), Limit.per_minute("tpm", 40_000)]
        limiter.set_limits(limits, resource="gpt-4")
    model = SimpleNamespace(text="hello", tokens=120)
    names = {"call_the_model": lambda prompt: model}
    ACQUIRES.run(names)
    answers = [names["handler"]({"user": "user-1", "prompt": "hi"}, None) for _ in range(3)]
    names["limiter"].close()
    assert [answer["statusCode"] for answer in answers] == [200, 200, 429]
    assert answers[0]["body"] == "hello"
    assert int(answers[2]["headers"]["Retry-After"]) > 0


def test_the_command_that_deploys_names_settings_that_exist():
    context = json.loads((ROOT / "cdk.json").read_text())["context"]
    given = re.findall(r"`cdk deploy ([^`]*)`", (ROOT / "README.md").read_text())
    settings = [name for options in given for name in re.findall(r"-c (\w+)=", options)]
    assert settings
    assert [name for name in settings if name not in context] == []
