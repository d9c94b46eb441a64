"""The guide's code runs: each block after those before it, in a stack of its own."""

from dataclasses import replace

import pytest
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_sns as sns

from tests.docs.examples import python_blocks

BLOCKS = python_blocks("docs/guide/construct.md")


def given(stack):
    """What a reader has of their own."""
    return {
        "self": stack,
        "key": kms.Key(stack, "Key"),
        "topic": sns.Topic(stack, "Topic"),
        "task_role": iam.Role(
            stack, "TaskRole", assumed_by=iam.ServicePrincipal("ecs-tasks.amazonaws.com")
        ),
        "function": lambda_.Function(
            stack,
            "Function",
            runtime=lambda_.Runtime.PYTHON_3_13,
            handler="index.handler",
            code=lambda_.Code.from_inline("def handler(event, context): pass"),
        ),
    }


@pytest.fixture(scope="module")
def imported(new_stack):
    """The names that the guide's first block leaves behind."""
    names = {"OUT": new_stack().node.root.outdir}
    first = BLOCKS[0]
    replace(first, code=first.code.replace("App()", "App(outdir=OUT)")).run(names)
    return names


def test_the_guides_first_block_synthesizes(imported):
    template = imported["app"].synth().get_stack_by_name("Api").template
    kinds = [resource["Type"] for resource in template["Resources"].values()]
    assert "Custom::HeadgateLimits" in kinds


@pytest.mark.parametrize("block", [b for b in BLOCKS[1:] if "from_env" not in b.code], ids=str)
def test_the_guides_other_blocks_work_on_their_own(block, imported, new_stack, template_of):
    stack = new_stack()
    names = {**given(stack), "Limit": imported["Limit"], "RateLimiter": imported["RateLimiter"]}
    if "limiter = RateLimiter" not in block.code and "limiter." in block.code:
        names["limiter"] = imported["RateLimiter"](stack, "Made")
    block.run(names)
    assert template_of(stack).resources


def test_the_function_in_the_guide_is_the_clients(monkeypatch):
    (block,) = [b for b in BLOCKS if "from_env" in b.code]
    monkeypatch.setenv("HEADGATE_TABLE", "limits")
    names = {}
    block.run(names)
    names["limiter"].close()


def test_the_error_in_the_guide_is_the_one_that_is_raised():
    from headgate_cdk import AggregatorOptions, InvalidOption

    with pytest.raises(InvalidOption) as refused:
        AggregatorOptions(memory=64)
    page = BLOCKS[0].page.read_text()
    assert f"headgate_cdk.checks.InvalidOption: {refused.value}" in page
