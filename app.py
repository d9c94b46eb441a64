"""The stack that `cdk deploy` deploys: one rate limiter, set up by context values.

cdk deploy -c name=limits -c removal=destroy

`cdk.json` lists the values, with what they mean and their defaults.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import aws_cdk as cdk
from aws_cdk import aws_kms as kms
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_sns as sns

from headgate_cdk import (
    AggregatorOptions,
    AlarmOptions,
    ArchiveOptions,
    FunctionOptions,
    InvalidOption,
    RateLimiter,
    RateLimiterApi,
)
from headgate_cdk.checks import matches

if TYPE_CHECKING:
    from collections.abc import Mapping

    from constructs import Construct

REMOVAL = {"retain": cdk.RemovalPolicy.RETAIN, "destroy": cdk.RemovalPolicy.DESTROY}
RUNTIMES = {
    runtime.name: runtime
    for runtime in (
        lambda_.Runtime.PYTHON_3_11,
        lambda_.Runtime.PYTHON_3_12,
        lambda_.Runtime.PYTHON_3_13,
        lambda_.Runtime.PYTHON_3_14,
    )
}
SWITCH = {"on": True, "off": False, "true": True, "false": False}


class HeadgateStack(cdk.Stack):
    """A rate limiter and what its users have to know to reach it."""

    def __init__(self, scope: Construct, name: str) -> None:
        super().__init__(scope, name, description="Headgate: a token-bucket rate limiter")
        removal = self._one_of("removal", "retain", REMOVAL)
        key, topic = self._text("encryption_key"), self._text("alarm_topic")
        self.limiter = RateLimiter(
            self,
            "Limiter",
            table_name=name,
            removal_policy=removal,
            encryption_key=kms.Key.from_key_arn(self, "Key", key) if key else None,
            aggregator=AggregatorOptions(
                memory=self._number("memory", 256),
                usage_retention_days=self._number("usage_retention_days", 90),
            )
            if self._switch("aggregator")
            else False,
            archive=ArchiveOptions(auto_delete_objects=self._switch("empty_archive", "off"))
            if self._switch("archive")
            else False,
            alarms=AlarmOptions(
                topic=sns.Topic.from_topic_arn(self, "Topic", topic) if topic else None
            )
            if self._switch("alarms")
            else False,
            dashboard=self._switch("dashboard"),
            functions=FunctionOptions(runtime=self._one_of("runtime", "python3.13", RUNTIMES)),
        )
        self.api = (
            RateLimiterApi(self, "Api", limiter=self.limiter)
            if self._switch("api", "off")
            else None
        )
        self._tell()

    def _tell(self) -> None:
        limiter = self.limiter
        told = {
            "TableName": limiter.table.table_name,
            "TableArn": limiter.table.table_arn,
            "StreamArn": limiter.stream,
            "LayerArn": limiter.layer.layer_version_arn,
            "Aggregator": limiter.aggregator and limiter.aggregator.function_name,
            "ArchiveBucket": limiter.archive and limiter.archive.bucket_name,
            "DeadLettersUrl": limiter.dead_letters and limiter.dead_letters.queue_url,
            "Dashboard": limiter.dashboard and limiter.dashboard.dashboard_name,
            "ApiUrl": self.api and self.api.url,
        }
        for output, value in told.items():
            if value:
                cdk.CfnOutput(self, output, value=value)

    def _text(self, name: str) -> str | None:
        return self.node.try_get_context(name) or None

    def _number(self, name: str, default: int) -> int:
        given = self.node.try_get_context(name)
        if given in {None, ""}:
            return default
        try:
            return int(given)
        except (TypeError, ValueError):
            raise InvalidOption(f"context {name}", given, "must be a whole number") from None

    def _switch(self, name: str, default: str = "on") -> bool:
        return bool(self._one_of(name, default, SWITCH))

    def _one_of(self, name: str, default: str, choices: Mapping[str, Any]) -> Any:
        given = self.node.try_get_context(name)
        word = default if given in {None, ""} else str(given).lower()
        if word not in choices:
            raise InvalidOption(f"context {name}", given, f"must be one of {', '.join(choices)}")
        return choices[word]


def stack_of(app: cdk.App) -> HeadgateStack:
    """The app's stack, named by context."""
    name = app.node.try_get_context("name") or "headgate"
    # Stacks allow no underscore and tables no shorter name.
    matches(
        "context name",
        name,
        r"[A-Za-z][A-Za-z0-9-]{2,127}",
        "must be a letter, then 2 to 127 letters, digits or '-'",
    )
    return HeadgateStack(app, name)


def main() -> None:
    """Synthesize."""
    app = cdk.App()
    stack_of(app)
    app.synth()


if __name__ == "__main__":
    main()
