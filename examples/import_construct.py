"""A stack of your own with a rate limiter in it.

cdk deploy --app "python examples/import_construct.py"
"""

from pathlib import Path

from aws_cdk import App, CfnOutput, Stack
from aws_cdk import aws_lambda as lambda_

from headgate import Limit
from headgate_cdk import AggregatorOptions, RateLimiter

CHAT = Path(__file__).parent / "chat"


class Chat(Stack):
    def __init__(self, scope, id, *, rpd=1_000, memory=256):
        super().__init__(scope, id)

        limiter = RateLimiter(self, "Limiter", aggregator=AggregatorOptions(memory=memory))
        limiter.add_limits(
            [Limit.per_day("rpd", rpd), Limit.per_minute("tpm", 40_000, burst=60_000)],
            resource="gpt-4",
        )

        function = lambda_.Function(
            self,
            "Chat",
            runtime=lambda_.Runtime.PYTHON_3_13,
            handler="handler.handler",
            code=lambda_.Code.from_asset(str(CHAT)),
        )
        limiter.attach(function)

        CfnOutput(self, "Function", value=function.function_name)
        CfnOutput(self, "Table", value=limiter.table.table_name)
        CfnOutput(self, "Archive", value=limiter.archive.bucket_name)


app = App()
Chat(
    app,
    "Chat",
    rpd=int(app.node.try_get_context("rpd") or 1_000),
    memory=int(app.node.try_get_context("memory") or 256),
)
app.synth()
