"""app.py: what `cdk deploy` deploys, by context."""

import json
from pathlib import Path

import app as headgate_app
import aws_cdk as cdk
import pytest

from headgate_cdk import InvalidOption
from tests.infra.templates import Template

ROOT = Path(__file__).resolve().parents[2]
SETTINGS = json.loads((ROOT / "cdk.json").read_text())["context"]


@pytest.fixture
def synthesize(outdir):
    def template(**context):
        values = {**SETTINGS, **context, "aws:cdk:disable-asset-staging": True}
        scope = cdk.App(outdir=str(outdir), context=values)
        stack = headgate_app.stack_of(scope)
        return Template(scope.synth().get_stack_by_name(stack.stack_name).template)

    return template


def test_every_context_value_is_documented_and_empty_by_default():
    names = [name for name in SETTINGS if not name.startswith("// ")]
    assert {f"// {name}" for name in names} == set(SETTINGS) - set(names)
    assert {SETTINGS[name] for name in names} == {""}
    source = (ROOT / "app.py").read_text()
    assert [name for name in names if f'"{name}"' not in source] == []


def test_without_settings_there_is_a_limiter_that_stays(synthesize):
    template = synthesize()
    (table,) = template.of("AWS::DynamoDB::Table").values()
    assert table["Properties"]["TableName"] == "headgate"
    assert table["DeletionPolicy"] == "Retain"


def test_outputs_are_what_the_client_and_its_operators_need(synthesize):
    assert set(synthesize().raw["Outputs"]) == {
        "TableName",
        "TableArn",
        "StreamArn",
        "LayerArn",
        "Aggregator",
        "ArchiveBucket",
        "DeadLettersUrl",
        "Dashboard",
    }


def test_every_context_value_changes_what_it_says(synthesize):
    template = synthesize(
        name="mine",
        removal="destroy",
        empty_archive="on",
        encryption_key="arn:aws:kms:eu-central-1:111122223333:key/1",
        memory="512",
        usage_retention_days="7",
        alarm_topic="arn:aws:sns:eu-central-1:111122223333:topic",
        runtime="python3.12",
    )
    (table,) = template.of("AWS::DynamoDB::Table").values()
    assert table["Properties"]["TableName"] == "mine"
    assert table["Properties"]["SSESpecification"]["SSEType"] == "KMS"
    assert table["DeletionPolicy"] == "Delete"
    assert template.count("Custom::S3AutoDeleteObjects") == 1
    aggregator = template.only("AWS::Lambda::Function", "Aggregator")
    assert aggregator["MemorySize"] == 512
    assert aggregator["Runtime"] == "python3.12"
    assert aggregator["Environment"]["Variables"]["HEADGATE_USAGE_RETENTION_DAYS"] == "7"
    alarms = template.of("AWS::CloudWatch::Alarm").values()
    told = {tuple(alarm["Properties"]["AlarmActions"]) for alarm in alarms}
    assert told == {("arn:aws:sns:eu-central-1:111122223333:topic",)}


def test_every_switch_switches_its_part_off(synthesize):
    template = synthesize(aggregator="off", archive="off", alarms="off", dashboard="off")
    assert {resource["Type"] for resource in template.resources.values()} == {
        "AWS::DynamoDB::Table",
        "AWS::Lambda::LayerVersion",
    }
    assert set(template.raw["Outputs"]) == {"TableName", "TableArn", "StreamArn", "LayerArn"}


def test_the_limiter_over_http_is_there_when_it_is_asked_for(synthesize):
    template = synthesize(api="on")
    assert template.count("AWS::ApiGatewayV2::Api") == 1
    assert "ApiUrl" in template.raw["Outputs"]


@pytest.mark.parametrize(
    ("context", "message"),
    [
        ({"removal": "burn"}, "context removal is 'burn': must be one of retain, destroy"),
        ({"archive": "maybe"}, "context archive is 'maybe': must be one of on, off"),
        ({"memory": "lots"}, "context memory is 'lots': must be a whole number"),
        ({"memory": "64"}, "aggregator.memory is 64"),
        ({"runtime": "python2.7"}, "context runtime is 'python2.7': must be one of python3.11"),
        ({"name": "no spaces"}, "context name is 'no spaces': must be"),
        ({"name": "under_score"}, "context name is 'under_score': must be"),
    ],
)
def test_a_value_that_cannot_be_right_is_named(synthesize, context, message):
    with pytest.raises(InvalidOption, match=message):
        synthesize(**context)
