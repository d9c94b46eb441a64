"""The limiter over HTTP: an HTTP API and the function behind it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import jsii
from aws_cdk import Duration, RemovalPolicy, Stack
from aws_cdk import aws_apigatewayv2 as apigateway
from aws_cdk import aws_apigatewayv2_authorizers as authorizers
from aws_cdk import aws_apigatewayv2_integrations as integrations
from aws_cdk import aws_iam as iam
from aws_cdk import aws_logs as logs
from aws_cdk import aws_secretsmanager as secretsmanager
from aws_cdk.aws_apigateway import AccessLogFormat
from constructs import Construct

from headgate_cdk import checks
from headgate_cdk.acknowledged import acknowledge
from headgate_cdk.checks import InvalidOption
from headgate_cdk.functions import make_function
from headgate_cdk.options import FunctionOptions

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aws_cdk import aws_kms as kms
    from aws_cdk import aws_lambda as lambda_

    from headgate_cdk.base import RateLimiterBase
    from headgate_cdk.grants import Namespace

SCOPES = ("user", "ip", "api_key", "global")
ROUTES = (
    ("POST", "/v1/ratelimit/check"),
    ("POST", "/v1/ratelimit/batch"),
    ("POST", "/v1/ratelimit/lease/adjust"),
    ("POST", "/v1/ratelimit/lease/release"),
    ("GET", "/v1/ratelimit/status/{identifier}/{resource}"),
)
HEALTH = ("GET", "/health")
# What an outage may take, the breaker's decision included, and then some.
TIMEOUT = Duration.seconds(10)


class RateLimiterApi(Construct):
    """Checks over HTTP, for callers that are not Python.

        api = RateLimiterApi(self, "Api", limiter=limiter)
        api.grant_invoke(role)

    Callers sign their requests as those of AWS are signed, unless another authorizer is given.
    """

    api: apigateway.HttpApi
    """The HTTP API."""
    function: lambda_.Function
    """What answers."""
    signing_key: secretsmanager.ISecret | None
    """Signs leases. None: none are given out."""

    def __init__(
        self,
        scope: Construct,
        id: str,  # noqa: A002
        *,
        limiter: RateLimiterBase,
        namespace: Namespace | str | None = None,
        on_unavailable: str | None = None,
        authorizer: apigateway.IHttpRouteAuthorizer | None = None,
        public_health: bool = False,
        scopes: Sequence[str] = SCOPES,
        leases: bool = True,
        signing_key: secretsmanager.ISecret | None = None,
        encryption_key: kms.IKey | None = None,
        throttle: apigateway.ThrottleSettings | None = None,
        cors: apigateway.CorsPreflightOptions | None = None,
        memory: int = 512,
        reserved_concurrency: int | None = None,
        functions: FunctionOptions | None = None,
    ) -> None:
        """Define an API of a limiter.

        Args:
            scope: The stack, or a construct in it.
            id: The construct's id in its scope.
            limiter: The limiter, of this app or referred to.
            namespace: What `add_namespace` returned, or its name. Default: the default
                namespace, with a grant on the whole table.
            on_unavailable: "allow" or "block" when the table cannot be reached. Default: what
                the stored limits say, else "block".
            authorizer: Who may call. Default: whoever IAM allows. `HttpNoneAuthorizer()` is
                everybody.
            public_health: Whether `GET /health` is answered to everybody, for checkers that
                cannot sign.
            scopes: Which kinds of identifiers callers may name.
            leases: Whether checks can be corrected later. Default: they can, which takes a
                secret.
            signing_key: A secret of at least 32 characters that signs leases. Default: one is
                made.
            encryption_key: Encrypts the secret and the access log. Default: AWS's own.
            throttle: What the API as a whole lets through. Default: the account's limits.
            cors: For browsers. Default: none.
            memory: The function's, in megabytes.
            reserved_concurrency: Default: the account's pool.
            functions: Runtime, architecture, logs and tracing of the function.
        """
        super().__init__(scope, id)
        checks.whole("memory", memory, least=128, most=10_240)
        checks.whole("reserved_concurrency", reserved_concurrency, least=1, most=100_000)
        _check_scopes(scopes)
        if signing_key is not None and not leases:
            raise InvalidOption("signing_key", signing_key, "has nothing to sign: leases is False")
        self.signing_key = (signing_key or self._make_key(encryption_key)) if leases else None
        options = functions or FunctionOptions()
        self.function = make_function(
            self,
            "api",
            description="Headgate: checks of rate limits over HTTP",
            options=options,
            environment={"HEADGATE_SCOPES": ",".join(scopes)},
            memory=memory,
            timeout=TIMEOUT,
            packages=("fastjsonschema",),
            reserved_concurrency=reserved_concurrency,
        )
        limiter.attach(self.function, namespace=namespace, on_unavailable=on_unavailable)
        if self.signing_key is not None:
            self.function.add_environment("HEADGATE_SIGNING_KEY", self.signing_key.secret_arn)
            self.signing_key.grant_read(self.function)
        self.api = self._make_api(
            authorizer or authorizers.HttpIamAuthorizer(), cors, public_health=public_health
        )
        self._make_stage(throttle, options.log_retention, encryption_key)

    @property
    def url(self) -> str:
        """Where it is, without a slash at the end."""
        return self.api.api_endpoint

    def grant_invoke(self, grantee: iam.IGrantable) -> iam.Grant:
        """Let a role or user call every operation, where IAM decides who may."""
        return iam.Grant.add_to_principal(
            grantee=grantee,
            actions=["execute-api:Invoke"],
            resource_arns=[self._arn(method, path) for method, path in (*ROUTES, HEALTH)],
        )

    def _arn(self, method: str, path: str) -> str:
        # What stands for a parameter is any text.
        plain = path.replace("{identifier}/{resource}", "*")
        return Stack.of(self).format_arn(
            service="execute-api",
            resource=self.api.api_id,
            resource_name=f"$default/{method}{plain}",
        )

    def _make_key(self, encryption_key: kms.IKey | None) -> secretsmanager.Secret:
        made = secretsmanager.Secret(
            self,
            "SigningKey",
            description="Headgate: signs leases that callers hold",
            encryption_key=encryption_key,
            generate_secret_string=secretsmanager.SecretStringGenerator(
                password_length=64, exclude_punctuation=True
            ),
            # With it go the leases that are out, of a day at most.
            removal_policy=RemovalPolicy.DESTROY,
        )
        acknowledge(
            made,
            "AwsSolutions-SMG4",
            "A new version can be put at any time: leases signed with the one before stay good",
        )
        return made

    def _make_api(
        self,
        authorizer: apigateway.IHttpRouteAuthorizer,
        cors: apigateway.CorsPreflightOptions | None,
        *,
        public_health: bool,
    ) -> apigateway.HttpApi:
        api = apigateway.HttpApi(
            self,
            "HttpApi",
            description="Headgate: rate limits over HTTP",
            create_default_stage=False,
            cors_preflight=cors,
            default_authorizer=authorizer,
        )
        integration = integrations.HttpLambdaIntegration("Function", self.function)
        for method, path in ROUTES:
            api.add_routes(
                path=path, methods=[apigateway.HttpMethod(method)], integration=integration
            )
        open_to_all = apigateway.HttpNoneAuthorizer() if public_health else None
        routes = api.add_routes(
            path=HEALTH[1],
            methods=[apigateway.HttpMethod.GET],
            integration=integration,
            authorizer=open_to_all,
        )
        if public_health:
            for route in routes:
                acknowledge(route, "AwsSolutions-APIG4", "Asked for: it tells only how it is")
        return api

    def _make_stage(
        self,
        throttle: apigateway.ThrottleSettings | None,
        retention: logs.RetentionDays,
        encryption_key: kms.IKey | None,
    ) -> None:
        log = logs.LogGroup(
            self,
            "AccessLog",
            retention=retention,
            encryption_key=encryption_key,
            removal_policy=RemovalPolicy.DESTROY,
        )
        apigateway.HttpStage(
            self,
            "Stage",
            http_api=self.api,
            auto_deploy=True,
            throttle=throttle,
            access_log_settings=_AccessLog(log),
        )


@jsii.implements(apigateway.IAccessLogSettings)
class _AccessLog:
    """Which route was called, and what became of it: no path, for it has the ids of entities."""

    def __init__(self, log: logs.ILogGroup) -> None:
        self._log = log

    @property
    def destination(self) -> apigateway.IAccessLogDestination:
        return apigateway.LogGroupLogDestination(self._log)

    @property
    def format(self) -> AccessLogFormat:
        fields = "requestId requestTime routeKey status responseLatency error.message".split()
        return AccessLogFormat.custom(json.dumps({name: f"$context.{name}" for name in fields}))


def _check_scopes(scopes: Sequence[str]) -> None:
    if isinstance(scopes, str) or not scopes:
        raise InvalidOption("scopes", scopes, f"must be a list of names, such as {list(SCOPES)}")
    for name in scopes:
        checks.matches(
            "scopes",
            name,
            r"[a-z][a-z0-9_]{0,31}",
            "must be a lowercase letter, then up to 31 lowercase letters, digits or _",
        )
