"""How every function of the limiter is made: its role, its log group, its code."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aws_cdk import RemovalPolicy
from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_logs as logs

from headgate_cdk.acknowledged import acknowledge
from headgate_cdk.layer import function_code

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from aws_cdk import Duration
    from constructs import Construct

    from headgate_cdk.options import FunctionOptions

METRICS_NAMESPACE = "Headgate"


def make_function(
    scope: Construct,
    name: str,
    *,
    description: str,
    options: FunctionOptions,
    environment: Mapping[str, str],
    memory: int,
    timeout: Duration,
    layer: lambda_.ILayerVersion | None = None,
    packages: Sequence[str] | None = (),
    reserved_concurrency: int | None = None,
) -> lambda_.Function:
    """The function whose sources are `lambdas/{name}`. `packages` are those it needs beyond what
    most have; None: it needs none at all.
    """
    id_ = name.capitalize()
    log_group = logs.LogGroup(
        scope,
        f"{id_}Logs",
        retention=options.log_retention,
        removal_policy=RemovalPolicy.DESTROY,
    )
    # A role of our own: the managed policy for logs would allow writing to any log group.
    role = iam.Role(
        scope,
        f"{id_}Role",
        assumed_by=iam.ServicePrincipal("lambda.amazonaws.com"),
        description=description,
    )
    log_group.grant_write(role)
    function = lambda_.Function(
        scope,
        id_,
        description=description,
        code=function_code(scope, name, packages=packages),
        handler=f"{name}.handler.handler",
        runtime=options.runtime,
        architecture=options.architecture,
        memory_size=memory,
        timeout=timeout,
        role=role,
        log_group=log_group,
        layers=[layer] if layer else None,
        tracing=lambda_.Tracing.ACTIVE if options.tracing else lambda_.Tracing.DISABLED,
        reserved_concurrent_executions=reserved_concurrency,
        environment={
            "POWERTOOLS_SERVICE_NAME": name,
            "POWERTOOLS_METRICS_NAMESPACE": METRICS_NAMESPACE,
            "POWERTOOLS_LOG_LEVEL": options.log_level,
            "POWERTOOLS_TRACE_DISABLED": "false" if options.tracing else "true",
            **environment,
        },
    )
    _acknowledge(function, role, tracing=options.tracing)
    return function


def _acknowledge(function: lambda_.Function, role: iam.Role, *, tracing: bool) -> None:
    acknowledge(
        function,
        "AwsSolutions-L1",
        "The runtime is the newest that the project is tested on; functions.runtime takes others",
    )
    if tracing:
        acknowledge(
            role,
            "AwsSolutions-IAM5[Resource::*]",
            "X-Ray's PutTraceSegments and PutTelemetryRecords cannot be limited to a resource",
        )
