"""The API as a template: its routes, who may call them, and what its function may do."""

import json
from dataclasses import replace

import pytest
from aws_cdk import aws_apigatewayv2 as apigateway
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from aws_cdk import aws_secretsmanager as secretsmanager
from cdk_nag import AwsSolutionsChecks
from cfnlint.api import ManualArgs, lint

from headgate_cdk import InvalidOption, RateLimiter, RateLimiterApi
from tests.docs.examples import python_blocks

ROUTE = "AWS::ApiGatewayV2::Route"
FUNCTION = "AWS::Lambda::Function"


def made(stack, **options):
    limiter = RateLimiter.from_name(stack, "Limiter", "limits")
    return RateLimiterApi(stack, "Api", limiter=limiter, **options)


def function(template):
    return template.only(FUNCTION, "Api")


def test_every_route_is_signed_for_unless_something_else_is_chosen(stack, template_of):
    made(stack)
    routes = {
        r["Properties"]["RouteKey"]: r["Properties"] for r in template_of(stack).of(ROUTE).values()
    }
    assert sorted(routes) == [
        "GET /health",
        "GET /v1/ratelimit/status/{identifier}/{resource}",
        "POST /v1/ratelimit/batch",
        "POST /v1/ratelimit/check",
        "POST /v1/ratelimit/lease/adjust",
        "POST /v1/ratelimit/lease/release",
    ]
    assert {route["AuthorizationType"] for route in routes.values()} == {"AWS_IAM"}


def test_health_can_be_open_to_checkers_that_cannot_sign(stack, template_of):
    made(stack, public_health=True)
    kinds = {
        r["Properties"]["RouteKey"]: r["Properties"]["AuthorizationType"]
        for r in template_of(stack).of(ROUTE).values()
    }
    assert kinds.pop("GET /health") == "NONE"
    assert set(kinds.values()) == {"AWS_IAM"}


def test_another_authorizer_takes_the_place_of_iam(stack, template_of):
    made(stack, authorizer=apigateway.HttpNoneAuthorizer())
    kinds = {r["Properties"]["AuthorizationType"] for r in template_of(stack).of(ROUTE).values()}
    assert kinds == {"NONE"}


def test_the_function_may_acquire_and_read_its_key_and_nothing_else(stack, template_of):
    made(stack)
    template = template_of(stack)
    actions = set()
    for statement in template.statements("Api"):
        given = statement["Action"]
        actions |= {given} if isinstance(given, str) else set(given)
    assert actions == {
        "dynamodb:GetItem",
        "dynamodb:BatchGetItem",
        "dynamodb:PutItem",
        "dynamodb:UpdateItem",
        "dynamodb:ConditionCheckItem",
        "secretsmanager:GetSecretValue",
        "secretsmanager:DescribeSecret",
        "logs:CreateLogStream",
        "logs:PutLogEvents",
        "xray:PutTraceSegments",
        "xray:PutTelemetryRecords",
    }
    settings = function(template)["Environment"]["Variables"]
    assert settings["HEADGATE_SCOPES"] == "user,ip,api_key,global"
    assert settings["POWERTOOLS_SERVICE_NAME"] == "api"
    assert "HEADGATE_SIGNING_KEY" in settings


def test_in_a_namespace_the_grant_is_narrowed_to_it(stack, template_of):
    limiter = RateLimiter.from_name(stack, "Limiter", "limits")
    team = limiter.add_namespace("team-a")
    RateLimiterApi(stack, "Api", limiter=limiter, namespace=team, on_unavailable="allow")
    template = template_of(stack)
    (tables,) = [s for s in template.statements("Api") if "dynamodb:GetItem" in s["Action"]]
    assert tables["Condition"]["ForAllValues:StringLike"]["dynamodb:LeadingKeys"]
    settings = function(template)["Environment"]["Variables"]
    assert settings["HEADGATE_NAMESPACE"] == "team-a"
    assert settings["HEADGATE_ON_UNAVAILABLE"] == "allow"


def test_without_leases_there_is_no_secret(stack, template_of):
    api = made(stack, leases=False)
    template = template_of(stack)
    assert api.signing_key is None
    assert template.count("AWS::SecretsManager::Secret") == 0
    assert "HEADGATE_SIGNING_KEY" not in function(template)["Environment"]["Variables"]


def test_a_secret_of_ones_own_signs(stack, template_of):
    key = secretsmanager.Secret(stack, "Mine")
    api = made(stack, signing_key=key)
    assert api.signing_key is key
    assert template_of(stack).count("AWS::SecretsManager::Secret") == 1


def test_invoking_is_granted_on_its_routes_alone(stack, template_of):
    role = iam.Role(stack, "Caller", assumed_by=iam.AccountRootPrincipal())
    made(stack).grant_invoke(role)
    (statement,) = template_of(stack).statements("Caller")
    assert statement["Action"] == "execute-api:Invoke"
    assert len(statement["Resource"]) == 6
    assert any(arn.endswith("/$default/POST/v1/ratelimit/check") for arn in statement["Resource"])
    assert any(arn.endswith("/$default/GET/v1/ratelimit/status/*") for arn in statement["Resource"])


def test_the_access_log_names_routes_and_no_paths(stack, template_of):
    made(stack)
    stage = template_of(stack).only("AWS::ApiGatewayV2::Stage")
    fields = json.loads(stage["AccessLogSettings"]["Format"])
    assert "routeKey" in fields
    assert not any("path" in field.lower() for field in fields)
    assert stage["StageName"] == "$default"


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"memory": 64}, "memory is 64: must be a whole number from 128 to 10240"),
        ({"scopes": []}, r"scopes is \[\]: must be a list of names"),
        ({"scopes": ["User"]}, "scopes is 'User': must be a lowercase letter"),
        ({"on_unavailable": "open"}, "on_unavailable is 'open': must be one of allow, block"),
        ({"reserved_concurrency": 0}, "reserved_concurrency is 0"),
    ],
)
def test_a_wrong_option_is_refused_with_what_is_allowed(stack, options, says):
    with pytest.raises(InvalidOption, match=says):
        made(stack, **options)


def test_a_key_without_leases_is_refused(stack):
    with pytest.raises(InvalidOption, match="has nothing to sign"):
        made(stack, leases=False, signing_key=secretsmanager.Secret(stack, "Mine"))


def full(stack):
    key = kms.Key(stack, "Key", enable_key_rotation=True)
    made(
        stack,
        encryption_key=key,
        public_health=True,
        throttle=apigateway.ThrottleSettings(rate_limit=1000, burst_limit=500),
        cors=apigateway.CorsPreflightOptions(allow_origins=["https://example.com"]),
        scopes=["user", "organisation"],
        reserved_concurrency=10,
    )


@pytest.mark.parametrize("build", [made, full])
def test_the_template_is_clean_and_the_constructs_pass(build, stack, template_of):
    build(stack)
    template = template_of(stack)
    found = lint(
        json.dumps(template.raw),
        config=ManualArgs(ignore_checks=["W3005"], regions=["eu-central-1"]),
    )
    assert [f"{match.rule.id} {match.message}" for match in found] == []
    report = AwsSolutionsChecks().validate_scope(stack)
    assert [violation.rule_name for violation in report.violations] == []


def test_the_guides_code_synthesizes(new_stack):
    (block,) = python_blocks("docs/guide/api.md")
    names = {"OUT": new_stack().node.root.outdir}
    replace(block, code=block.code.replace("App()", "App(outdir=OUT)")).run(names)
    template = names["app"].synth().get_stack_by_name("Limits").template
    kinds = [resource["Type"] for resource in template["Resources"].values()]
    assert "AWS::ApiGatewayV2::Api" in kinds
