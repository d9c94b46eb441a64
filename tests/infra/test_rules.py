"""The rules of others: cfn-lint on the templates, cdk-nag's AwsSolutions on the constructs."""

import json

import aws_cdk as cdk
import pytest
from aws_cdk import RemovalPolicy
from aws_cdk import aws_kms as kms
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_s3 as s3
from aws_cdk import aws_sns as sns
from cdk_nag import AwsSolutionsChecks
from cfnlint.api import ManualArgs, lint

from headgate import Limit
from headgate_cdk import AlarmOptions, ArchiveOptions, RateLimiter, TableOptions

# Not ours: the CDK adds a dependency on the role beside the reference to it.
NOT_OURS = ["W3005"]


def plain(stack):
    RateLimiter(stack, "Limiter")


def full(stack):
    """Everything that can be chosen, chosen."""
    key = kms.Key(stack, "Key", enable_key_rotation=True)
    limiter = RateLimiter(
        stack,
        "Limiter",
        table_name="limits",
        encryption_key=key,
        table=TableOptions(
            max_write_units=1000, warm_write_units=4000, recovery_days=7, contributor_insights=True
        ),
        archive=ArchiveOptions(
            access_logs=s3.Bucket.from_bucket_name(stack, "Logs", "the-logs"), database="headgate"
        ),
        alarms=AlarmOptions(topic=sns.Topic.from_topic_arn(stack, "Topic", TOPIC)),
    )
    team = limiter.add_namespace("team-a")
    limiter.add_entity("org-1", namespace=team)
    limiter.add_limits([Limit.per_minute("rpm", 10)], namespace=team, entity_id="org-1")
    limiter.attach(caller(stack), namespace=team)


def destroyed(stack):
    RateLimiter(
        stack,
        "Limiter",
        removal_policy=RemovalPolicy.DESTROY,
        archive=ArchiveOptions(prefix=""),
    )


def elsewhere(stack):
    limiter = RateLimiter.from_name(stack, "Limiter", "limits")
    limiter.add_limits([Limit.per_minute("rpm", 10)])
    limiter.grants.read(caller(stack))


TOPIC = "arn:aws:sns:eu-central-1:111122223333:topic"


def caller(stack):
    """A function whose findings are its author's to mend: only the policy is ours."""
    function = lambda_.Function(
        stack,
        "Caller",
        runtime=lambda_.Runtime.PYTHON_3_13,
        handler="index.handler",
        code=lambda_.Code.from_inline("def handler(event, context): pass"),
    )
    for finding in ("AwsSolutions-L1", BASIC_ROLE):
        cdk.Validations.of(function).acknowledge(
            cdk.Acknowledgment(id=finding, reason="Not what is tested here")
        )
    return function


BASIC_ROLE = (
    "AwsSolutions-IAM4[Policy::arn:<AWS::Partition>:iam::aws:policy/"
    "service-role/AWSLambdaBasicExecutionRole]"
)


@pytest.mark.parametrize("build", [plain, full, destroyed, elsewhere])
def test_the_template_is_clean_and_the_constructs_pass(build, new_stack, template_of):
    stack = new_stack()
    build(stack)
    template = template_of(stack)
    found = lint(
        json.dumps(template.raw),
        config=ManualArgs(ignore_checks=NOT_OURS, regions=["eu-central-1"]),
    )
    assert [f"{match.rule.id} {match.message}" for match in found] == []
    report = AwsSolutionsChecks().validate_scope(stack)
    assert [violation.rule_name for violation in report.violations] == []
    assert report.success


def test_the_rules_would_find_something(new_stack, template_of):
    """That nothing is found above means something: the rules are awake."""
    stack = new_stack()
    s3.Bucket(stack, "Bare")
    cdk.CfnResource(stack, "Wrong", type="AWS::SQS::Queue", properties={"NoSuchThing": 1})
    template = template_of(stack)
    assert lint(json.dumps(template.raw))
    report = AwsSolutionsChecks().validate_scope(stack)
    assert "AwsSolutions-S1" in [violation.rule_name for violation in report.violations]
