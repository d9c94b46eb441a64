"""APIs whose requests are limited before they reach the backend.

cdk deploy --app "python examples/authorizer_stack.py" -c issuer=https://your.issuer/
"""

from pathlib import Path

from aws_cdk import App, CfnOutput, RemovalPolicy, Stack
from aws_cdk import aws_apigateway as rest
from aws_cdk import aws_apigatewayv2 as http
from aws_cdk import aws_lambda as lambda_
from aws_cdk.aws_apigatewayv2_integrations import HttpLambdaIntegration

from headgate import Limit
from headgate_cdk import AuthorizerScope, Caller, RateLimitAuthorizer, RateLimiter, TokenOptions

BACKEND = Path(__file__).parent / "authorizer_backend.py"


class Limited(Stack):
    def __init__(self, scope, id, *, rpd, issuer, on_unavailable):
        super().__init__(scope, id)

        limiter = RateLimiter(
            self,
            "Limiter",
            removal_policy=RemovalPolicy.DESTROY,
            aggregator=False,
            archive=False,
        )
        limiter.add_limits([Limit.per_day("rpd", rpd)], resource="api")
        limiter.add_limits([Limit.per_day("rpd", 100 * rpd)], resource="addresses")

        by_key = RateLimitAuthorizer(
            self,
            "ByKey",
            limiter=limiter,
            key=Caller.api_key(),
            resource="api",
            cost={"rpd": 1},
            also=[AuthorizerScope(key=Caller.ip(), resource="addresses", cost={"rpd": 1})],
            on_unavailable=on_unavailable,
        )
        by_user = RateLimitAuthorizer(
            self,
            "ByUser",
            limiter=limiter,
            key=Caller.claim("sub"),
            resource="api",
            cost={"rpd": 1},
            token=TokenOptions(issuer=issuer, audience="example", required=True, pass_on=["sub"]),
        )

        backend = lambda_.Function(
            self,
            "Backend",
            runtime=lambda_.Runtime.PYTHON_3_13,
            handler="index.handler",
            code=lambda_.Code.from_inline(BACKEND.read_text()),
        )
        api = rest.RestApi(self, "Rest")
        to_backend = rest.LambdaIntegration(backend)
        api.root.add_resource("items").add_method(
            "GET", to_backend, authorizer=by_key.for_rest(api)
        )
        api.root.add_resource("mine").add_method(
            "GET", to_backend, authorizer=by_user.for_rest(api)
        )
        routes = http.HttpApi(self, "Http")
        routes.add_routes(
            path="/items",
            integration=HttpLambdaIntegration("Items", backend),
            authorizer=by_key.for_http(routes),
        )
        routes.add_routes(
            path="/mine",
            integration=HttpLambdaIntegration("Mine", backend),
            authorizer=by_user.for_http(routes),
        )

        CfnOutput(self, "RestId", value=api.rest_api_id)
        CfnOutput(self, "Stage", value=api.deployment_stage.stage_name)
        CfnOutput(self, "HttpId", value=routes.api_id)
        CfnOutput(self, "Table", value=limiter.table.table_name)
        CfnOutput(self, "ByKeyFunction", value=by_key.function.function_name)
        CfnOutput(self, "ByUserFunction", value=by_user.function.function_name)


app = App()
Limited(
    app,
    "Limited",
    rpd=int(app.node.try_get_context("rpd") or 1_000),
    issuer=app.node.try_get_context("issuer") or "https://issuer.example/",
    on_unavailable=app.node.try_get_context("on_unavailable"),
)
app.synth()
