"""Attaching functions, and limiters that are deployed elsewhere."""

import pytest
from aws_cdk import Stack
from aws_cdk import aws_ecr as ecr
from aws_cdk import aws_ecs as ecs
from aws_cdk import aws_kms as kms
from aws_cdk import aws_lambda as lambda_

from headgate_cdk import InvalidOption, Namespace, RateLimiter

MINE = Namespace("mine", id="AAAAAAAAAAA")


def python_function(scope, name="Fn", runtime=lambda_.Runtime.PYTHON_3_13):
    return lambda_.Function(
        scope,
        name,
        runtime=runtime,
        handler="index.handler",
        code=lambda_.Code.from_inline("def handler(event, context): pass"),
    )


def test_attributes_of_a_limiter_deployed_elsewhere_reach_what_uses_them(stack, template_of):
    arn = "arn:aws:dynamodb:eu-west-1:111122223333:table/limits"
    layer = "arn:aws:lambda:eu-west-1:111122223333:layer:headgate:7"
    key = kms.Key(stack, "Key")
    limiter = RateLimiter.from_attributes(
        stack,
        "Limiter",
        table_arn=arn,
        stream_arn=f"{arn}/stream/2026-01-01T00:00:00.000",
        encryption_key=key,
        layer_arn=layer,
    )
    function = python_function(stack)
    limiter.attach(function)
    template = template_of(stack)
    assert limiter.stream == f"{arn}/stream/2026-01-01T00:00:00.000"
    assert template.only("AWS::Lambda::Function", "Fn")["Layers"] == [layer]
    assert template.only("AWS::Lambda::Function", "Fn")["Environment"]["Variables"] == {
        "HEADGATE_TABLE": "limits"
    }
    assert "kms:Decrypt" in str(template.statements("Fn"))
    assert template.count("AWS::Lambda::LayerVersion") == 0


@pytest.mark.parametrize(
    "given",
    [{}, {"table_name": "limits", "table_arn": "arn:aws:dynamodb:a:1:table/limits"}],
)
def test_a_limiter_elsewhere_is_named_once(stack, given):
    with pytest.raises(InvalidOption, match="give either this or table_arn"):
        RateLimiter.from_attributes(stack, "Limiter", **given)


def test_an_arn_that_is_no_tables_is_refused(stack):
    with pytest.raises(InvalidOption, match="table_arn is 'arn:aws:s3:::bucket': must be"):
        RateLimiter.from_attributes(stack, "Limiter", table_arn="arn:aws:s3:::bucket")


def test_attaching_gives_the_layer_the_environment_and_the_least_grant(stack, template_of):
    limiter = RateLimiter(stack, "Limiter", table_name="limits")
    limiter.attach(python_function(stack), namespace=MINE, on_unavailable="allow")
    template = template_of(stack)
    function = template.only("AWS::Lambda::Function", "Fn")
    assert template.resolve(function["Environment"]["Variables"]) == {
        "HEADGATE_TABLE": "limits",
        "HEADGATE_NAMESPACE": "mine",
        "HEADGATE_NAMESPACE_ID": MINE.id,
        "HEADGATE_ON_UNAVAILABLE": "allow",
    }
    assert len(function["Layers"]) == 1
    (statement,) = template.statements("Fn")
    assert "dynamodb:UpdateItem" in statement["Action"]
    assert "dynamodb:DeleteItem" not in statement["Action"]
    assert statement["Condition"]["ForAllValues:StringLike"] == {
        "dynamodb:LeadingKeys": [f"{MINE.id}/*", MINE.id]
    }


@pytest.mark.parametrize(
    ("access", "action"), [("read", "dynamodb:Query"), ("admin", "dynamodb:DeleteItem")]
)
def test_a_function_can_be_attached_to_read_or_to_administer(stack, template_of, access, action):
    RateLimiter(stack, "Limiter").attach(python_function(stack), access=access)
    (statement,) = template_of(stack).statements("Fn")
    assert action in statement["Action"]


def test_a_container_has_no_layer_and_can_be_attached_without(stack, template_of):
    image = lambda_.Function(
        stack,
        "Fn",
        code=lambda_.Code.from_ecr_image(
            ecr.Repository.from_repository_name(stack, "Repository", "images")
        ),
        handler=lambda_.Handler.FROM_IMAGE,
        runtime=lambda_.Runtime.FROM_IMAGE,
    )
    limiter = RateLimiter(stack, "Limiter")
    with pytest.raises(InvalidOption, match="pass layer=False"):
        limiter.attach(image)
    limiter.attach(image, layer=False)
    function = template_of(stack).only("AWS::Lambda::Function", "Fn")
    assert "Layers" not in function
    assert "HEADGATE_TABLE" in function["Environment"]["Variables"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"access": "everything"}, "access is 'everything': must be one of"),
        ({"namespace": "unknown"}, "namespace is 'unknown': its id is not known here"),
        ({"on_unavailable": "maybe"}, "on_unavailable is 'maybe': must be one of allow, block"),
    ],
)
def test_what_cannot_be_attached_is_refused(stack, options, message):
    with pytest.raises(InvalidOption, match=message):
        RateLimiter(stack, "Limiter").attach(python_function(stack), **options)


def test_a_function_of_another_language_is_refused(stack):
    other = python_function(stack, runtime=lambda_.Runtime.NODEJS_22_X)
    with pytest.raises(InvalidOption, match=r"function.runtime is 'nodejs22.x'"):
        RateLimiter(stack, "Limiter").attach(other)


def test_a_function_that_is_not_of_this_app_is_refused(stack):
    other = lambda_.Function.from_function_name(stack, "Other", "other")
    with pytest.raises(InvalidOption, match="an imported one cannot be changed"):
        RateLimiter(stack, "Limiter").attach(other)


def test_a_container_task_gets_the_environment_without_being_attached(stack, template_of):
    limiter = RateLimiter(stack, "Limiter", table_name="limits")
    task = ecs.FargateTaskDefinition(stack, "Task")
    task.add_container(
        "App",
        image=ecs.ContainerImage.from_registry("app"),
        environment=limiter.environment(namespace=MINE),
    )
    limiter.grants.acquire(task.task_role, namespace=MINE)
    template = template_of(stack)
    (container,) = template.only("AWS::ECS::TaskDefinition")["ContainerDefinitions"]
    given = {entry["Name"]: template.resolve(entry["Value"]) for entry in container["Environment"]}
    assert given == {
        "HEADGATE_TABLE": "limits",
        "HEADGATE_NAMESPACE": "mine",
        "HEADGATE_NAMESPACE_ID": MINE.id,
    }


def test_a_function_of_another_stack_finds_the_table_by_reference(new_stack, template_of):
    first = new_stack()
    limiter = RateLimiter(first, "Limiter")
    second = Stack(first.node.scope, f"{first.stack_name}Users")
    limiter.attach(python_function(second))
    variables = template_of(second).only("AWS::Lambda::Function")["Environment"]["Variables"]
    assert "Fn::ImportValue" in variables["HEADGATE_TABLE"]
