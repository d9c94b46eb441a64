"""The authorizer's construct: what it makes, what it refuses, and the guide's page about it."""

import json
import re

import aws_cdk as cdk
import pytest
from aws_cdk import aws_apigateway as rest
from aws_cdk import aws_apigatewayv2 as http
from aws_cdk import aws_lambda as lambda_
from aws_cdk.aws_apigatewayv2_integrations import HttpLambdaIntegration
from cdk_nag import AwsSolutionsChecks
from cfnlint.api import ManualArgs, lint

from authorizer.answers import NAMES
from authorizer.settings import Settings, digest
from headgate_cdk import (
    AuthorizerScope,
    Caller,
    FunctionOptions,
    InvalidOption,
    Namespace,
    RateLimitAuthorizer,
    RateLimiter,
    TokenOptions,
)
from tests.docs.examples import ROOT, python_blocks

REST = "AWS::ApiGateway::Authorizer"
HTTP = "AWS::ApiGatewayV2::Authorizer"
RESPONSE = "AWS::ApiGateway::GatewayResponse"
MINE = Namespace("mine", id="AAAAAAAAAAA")
PLAIN = {"key": Caller.ip(), "resource": "api", "cost": {"rpm": 1}}


def limiter_of(stack):
    return RateLimiter.from_name(stack, "Limiter", "limits")


def gate_of(stack, id_="Gate", **options):
    limiter = stack.node.try_find_child("Limiter") or limiter_of(stack)
    return RateLimitAuthorizer(stack, id_, **{"limiter": limiter, **PLAIN, **options})


def backend_of(stack):
    return lambda_.Function(
        stack,
        "Backend",
        runtime=lambda_.Runtime.PYTHON_3_13,
        handler="index.handler",
        code=lambda_.Code.from_inline("def handler(event, context): pass"),
    )


def with_apis(stack, gate, **options):
    """A REST and an HTTP API, each with two methods that are limited."""
    backend = backend_of(stack)
    api = rest.RestApi(stack, "Rest")
    for verb in ("GET", "POST"):
        authorizer = gate.for_rest(api, **options)
        api.root.add_method(verb, rest.LambdaIntegration(backend), authorizer=authorizer)
    routes = http.HttpApi(stack, "Http")
    for path in ("/a", "/b"):
        integration = HttpLambdaIntegration(f"To{path[1]}", backend)
        routes.add_routes(path=path, integration=integration, authorizer=gate.for_http(routes))
    return api, routes


@pytest.fixture(scope="module")
def made(new_stack, template_of):
    """The template of both kinds of API with everything at its default."""
    stack = new_stack()
    with_apis(stack, gate_of(stack))
    return template_of(stack)


def test_answers_are_never_cached_and_requests_without_a_key_come_to_us(made):
    authorizer = made.only(REST)
    assert authorizer["Type"] == "REQUEST"
    assert authorizer["AuthorizerResultTtlInSeconds"] == 0
    assert "IdentitySource" not in authorizer
    other = made.only(HTTP)
    assert other["AuthorizerType"] == "REQUEST"
    assert other["AuthorizerResultTtlInSeconds"] == 0
    assert other["AuthorizerPayloadFormatVersion"] == "2.0"
    assert other["EnableSimpleResponses"] is True
    assert not other["IdentitySource"]


def test_there_is_no_option_to_cache():
    for method in (RateLimitAuthorizer.__init__, RateLimitAuthorizer.for_rest):
        assert not [name for name in method.__annotations__ if re.search("cache|ttl", name)]


def test_methods_and_routes_share_one_authorizer_of_their_api(made):
    (authorizer,) = made.of(REST)
    methods = made.of("AWS::ApiGateway::Method").values()
    assert [m["Properties"]["AuthorizerId"] for m in methods] == [{"Ref": authorizer}] * 2
    (authorizer,) = made.of(HTTP)
    routes = made.of("AWS::ApiGatewayV2::Route").values()
    assert [r["Properties"]["AuthorizerId"] for r in routes] == [{"Ref": authorizer}] * 2
    assert {r["Properties"]["AuthorizationType"] for r in routes} == {"CUSTOM"}


def test_the_function_may_acquire_log_and_trace_and_nothing_else(made):
    actions = [s["Action"] for s in made.statements("Gate")]
    assert actions == [
        ["logs:CreateLogStream", "logs:PutLogEvents"],
        ["xray:PutTraceSegments", "xray:PutTelemetryRecords"],
        [
            "dynamodb:GetItem",
            "dynamodb:BatchGetItem",
            "dynamodb:PutItem",
            "dynamodb:UpdateItem",
            "dynamodb:ConditionCheckItem",
        ],
    ]
    for permission in made.of("AWS::Lambda::Permission").values():
        assert "SourceArn" in permission["Properties"]


def test_a_namespace_narrows_the_grant(stack, template_of):
    gate_of(stack, namespace=MINE, on_unavailable="allow")
    template = template_of(stack)
    *_, statement = template.statements("Gate")
    assert statement["Condition"]["ForAllValues:StringLike"] == {
        "dynamodb:LeadingKeys": [f"{MINE.id}/*", MINE.id]
    }
    variables = template.only("AWS::Lambda::Function")["Environment"]["Variables"]
    assert variables["HEADGATE_NAMESPACE_ID"] == MINE.id
    assert variables["HEADGATE_ON_UNAVAILABLE"] == "allow"


def response(template, kind):
    (found,) = [
        r["Properties"]
        for r in template.of(RESPONSE).values()
        if r["Properties"]["ResponseType"] == kind
    ]
    return found


def test_a_denial_of_a_rest_api_is_429_with_the_headers(made):
    denied = response(made, "ACCESS_DENIED")
    assert denied["StatusCode"] == "429"
    headers = {
        name.removeprefix("gatewayresponse.header."): value
        for name, value in denied["ResponseParameters"].items()
    }
    # Each is filled from where the function puts it.
    assert headers == {
        name: f"context.authorizer.{value}" for name, value in NAMES.items() if name in headers
    }
    assert {"Retry-After", "RateLimit", "X-RateLimit-Remaining"} <= set(headers)


@pytest.mark.parametrize(
    "told", [{"error": "rate_limit_exceeded", "retryAfter": "3", "scope": "api"}, {}]
)
def test_the_body_of_a_denial_is_json_whoever_denied(made, told):
    template = response(made, "ACCESS_DENIED")["ResponseTemplates"]["application/json"]
    # As API Gateway fills it in: text for text, and nothing for what is not there.
    filled = re.sub(r"\$context\.authorizer\.(\w+)", lambda m: told.get(m[1], ""), template)
    assert json.loads(filled) == {
        "error": told.get("error", ""),
        "retry_after": told.get("retryAfter", ""),
        "scope": told.get("scope", ""),
    }


@pytest.mark.parametrize("kind", ["AUTHORIZER_FAILURE", "AUTHORIZER_CONFIGURATION_ERROR"])
def test_no_decision_is_503(made, kind):
    failed = response(made, kind)
    assert failed["StatusCode"] == "503"
    assert failed["ResponseParameters"]["gatewayresponse.header.Retry-After"] == "'1'"
    assert json.loads(failed["ResponseTemplates"]["application/json"])


def test_responses_are_deployed_with_the_api(made):
    (deployment,) = made.of("AWS::ApiGateway::Deployment").values()
    assert set(made.of(RESPONSE)) <= set(deployment["DependsOn"])


def test_responses_can_have_more_headers_or_stay_as_they_are(new_stack, template_of):
    stack = new_stack()
    origin = {"Access-Control-Allow-Origin": "'https://example.com'"}
    with_apis(stack, gate_of(stack), response_headers=origin)
    for found in template_of(stack).of(RESPONSE).values():
        given = found["Properties"]["ResponseParameters"]
        assert given["gatewayresponse.header.Access-Control-Allow-Origin"] == (
            "'https://example.com'"
        )
    stack = new_stack()
    with_apis(stack, gate_of(stack), responses=False)
    assert template_of(stack).count(RESPONSE) == 0


def test_two_authorizers_may_serve_one_api_and_one_authorizer_two(stack, template_of):
    api, routes = with_apis(stack, gate_of(stack))
    other = gate_of(stack, "Other", key=Caller.everyone())
    backend = stack.node.find_child("Backend")
    api.root.add_method("PUT", rest.LambdaIntegration(backend), authorizer=other.for_rest(api))
    routes.add_routes(
        path="/c",
        integration=HttpLambdaIntegration("Toc", backend),
        authorizer=other.for_http(routes),
    )
    second = rest.RestApi(stack, "Second")
    second.root.add_method(
        "GET", rest.LambdaIntegration(backend), authorizer=other.for_rest(second)
    )
    template = template_of(stack)
    assert template.count(REST) == 3
    assert template.count(HTTP) == 2
    assert template.count(RESPONSE) == 6


def test_an_api_of_another_stack_is_refused_with_the_reason(new_stack):
    stack = new_stack()
    gate = gate_of(stack)
    other = cdk.Stack(stack.node.scope, f"{stack.stack_name}Other")
    with pytest.raises(InvalidOption, match="must be in the stack of the authorizer"):
        gate.for_rest(rest.RestApi(other, "Rest"))


def settings_of(stack, template_of):
    function = template_of(stack).only("AWS::Lambda::Function")
    return function["Environment"]["Variables"]["HEADGATE_AUTHORIZER"]


def test_every_option_reaches_the_function_and_it_understands_them(stack, template_of):
    gate_of(
        stack,
        key=Caller.claim("sub"),
        cost={"rpm": 2},
        name="you",
        also=[
            AuthorizerScope(key=key, resource="more", cost="export")
            for key in (
                Caller.api_key(required=True),
                Caller.usage_plan_key(),
                Caller.header("X-Tenant", hashed=False),
                Caller.ip(),
                Caller.everyone(),
            )
        ],
        token=TokenOptions(
            issuer="https://issuer.example/",
            audience=("a", "b"),
            jwks_url="https://issuer.example/keys?v=1",
            header="X-Token",
            required=True,
            pass_on=["sub"],
        ),
        memory=256,
        functions=FunctionOptions(log_level="WARNING"),
    )
    text = settings_of(stack, template_of)
    parsed = Settings.parse(text)
    assert parsed.policy.name == "you"
    assert parsed.policy.cost == {"rpm": 2}
    assert len(parsed.policy.also) == 5
    assert parsed.token.audience == ("a", "b")
    assert parsed.token.jwks_url == "https://issuer.example/keys?v=1"
    assert parsed.token.header == "X-Token"
    assert parsed.token.required
    assert parsed.token.pass_on == ("sub",)
    assert json.loads(text)["scopes"][1]["key"] == {
        "by": "header",
        "name": "x-api-key",
        "hashed": True,
        "required": True,
    }
    function = template_of(stack).only("AWS::Lambda::Function")
    assert function["MemorySize"] == 256
    assert function["Environment"]["Variables"]["POWERTOOLS_LOG_LEVEL"] == "WARNING"


def test_an_issuer_that_is_not_known_yet_is_filled_in_by_the_deployment(stack, template_of):
    issuer = cdk.CfnParameter(stack, "Issuer").value_as_string
    token = TokenOptions(issuer=issuer, audience=cdk.CfnParameter(stack, "For").value_as_string)
    gate_of(stack, key=Caller.claim("sub"), token=token)
    text = template_of(stack).resolve(settings_of(stack, template_of))
    assert Settings.parse(text).token.issuer == "Issuer"
    assert Settings.parse(text).token.audience == ("For",)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        # Made in the test: to make one starts Node, which collecting need not.
        (lambda: {"key": "ip"}, r"key is 'ip': must be a Caller"),
        (lambda: {"resource": "a#b"}, "resource is 'a#b'"),
        (lambda: {"cost": {}}, "cost is {}"),
        (lambda: {"cost": {"rpm": -1}}, "cost is {'rpm': -1}"),
        (lambda: {"name": "a\nb"}, r"name is 'a\\nb'"),
        (lambda: {"key": Caller.claim("sub")}, "token is None: is needed"),
        (lambda: {"also": [AuthorizerScope(**PLAIN)] * 25}, "also is 25: at most 24"),
        (
            lambda: {"also": [AuthorizerScope(**PLAIN | {"resource": "r" * 128})] * 20},
            "settings is .* 3000 characters",
        ),
        (lambda: {"memory": 64}, "memory is 64"),
        (lambda: {"on_unavailable": "maybe"}, "on_unavailable is 'maybe'"),
        (lambda: {"namespace": "unknown"}, "namespace is 'unknown'"),
    ],
)
def test_options_that_can_never_be_right_are_refused(stack, options, message):
    with pytest.raises(InvalidOption, match=message):
        gate_of(stack, **options())


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Caller.header("x y"), "key.header is 'x y'"),
        (lambda: Caller.header(""), "key.header is ''"),
        (lambda: Caller.claim(""), "key.claim is ''"),
        (lambda: TokenOptions(issuer="http://x", audience="a"), "token.issuer is 'http://x'"),
        (lambda: TokenOptions(issuer="x", audience="a"), "must be an address .* https://"),
        (lambda: TokenOptions(issuer="https://x", audience=""), "token.audience is ''"),
        (lambda: TokenOptions(issuer="https://x", audience=["a", ""]), "token.audience is"),
        (
            lambda: TokenOptions(issuer="https://x", audience="a", jwks_url="http://x/k"),
            "token.jwks_url is 'http://x/k'",
        ),
        (
            lambda: TokenOptions(issuer="https://x", audience="a", header="a:b"),
            "token.header is 'a:b'",
        ),
    ],
)
def test_values_that_can_never_be_right_are_refused_where_they_are_written(make, message):
    with pytest.raises(InvalidOption, match=message):
        make()


# Of the API and its backend, which are their author's.
NOT_OURS = [
    "AwsSolutions-APIG1",
    "AwsSolutions-APIG2",
    "AwsSolutions-APIG3",
    "AwsSolutions-APIG6",
    "AwsSolutions-COG4",
    "AwsSolutions-L1",
    "AwsSolutions-IAM4",
]


def test_the_template_is_clean_and_the_construct_passes(new_stack, template_of):
    stack = new_stack()
    gate = gate_of(stack, namespace=MINE)
    with_apis(stack, gate)
    template = template_of(stack)
    found = lint(
        json.dumps(template.raw),
        config=ManualArgs(ignore_checks=["W3005"], regions=["eu-central-1"]),
    )
    assert [f"{match.rule.id} {match.message}" for match in found] == []
    report = AwsSolutionsChecks().validate_scope(gate)
    assert [violation.rule_name for violation in report.violations] == []
    whole = AwsSolutionsChecks().validate_scope(stack)
    left = {violation.rule_name.partition("[")[0] for violation in whole.violations}
    assert left - set(NOT_OURS) == set()


def test_the_guides_code_runs_from_top_to_bottom(stack, template_of):
    names = {"self": stack, "backend": backend_of(stack)}
    for block in python_blocks("docs/guide/authorizer.md"):
        block.run(names)
    template = template_of(stack)
    assert template.count(REST) == 2
    assert template.count(HTTP) == 1
    assert names["entity_id"] == digest("the-api-key")
    mapped = template.only("AWS::ApiGatewayV2::Integration", "Elsewhere")
    assert mapped["RequestParameters"] == {
        "overwrite:header.x-ratelimit-remaining": "$context.authorizer.remaining"
    }
    assert "200" in mapped["ResponseParameters"]


def test_the_guides_backend_is_the_examples():
    (block,) = [b for b in python_blocks("docs/guide/authorizer.md") if "def handler" in b.code]
    example = (ROOT / "examples/authorizer_backend.py").read_text()
    shown = re.search(r"HEADERS = \{.*?\n\}\n", block.code, re.DOTALL)[0]
    assert shown in example
    assert set(re.findall(r': "(\w+)"', shown)) <= set(NAMES.values())


def test_a_number_is_a_cost_of_every_limit(stack, template_of):
    gate_of(stack, cost=2)
    assert Settings.parse(settings_of(stack, template_of)).policy.cost == 2
