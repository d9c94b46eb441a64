"""A stack that uses a rate limiter which `cdk deploy` has deployed elsewhere.

cdk deploy --app "python examples/attach_function.py" -c table=headgate
"""

from pathlib import Path

from aws_cdk import App, CfnOutput, Stack
from aws_cdk import aws_lambda as lambda_

from headgate import Limit
from headgate_cdk import RateLimiter

CHAT = Path(__file__).parent / "chat"


class Team(Stack):
    def __init__(self, scope, id, *, table):
        super().__init__(scope, id)

        limiter = RateLimiter.from_name(self, "Limiter", table)
        team = limiter.add_namespace("team-a")
        limiter.add_limits(
            [Limit.per_day("rpd", 3), Limit.per_minute("tpm", 40_000)],
            namespace=team,
            resource="gpt-4",
        )

        function = lambda_.Function(
            self,
            "Chat",
            runtime=lambda_.Runtime.PYTHON_3_13,
            handler="handler.handler",
            code=lambda_.Code.from_asset(str(CHAT)),
        )
        limiter.attach(function, namespace=team)

        CfnOutput(self, "Function", value=function.function_name)
        CfnOutput(self, "NamespaceId", value=team.id)


app = App()
Team(app, "Team", table=app.node.try_get_context("table") or "headgate")
app.synth()
