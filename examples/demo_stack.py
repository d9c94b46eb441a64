"""The stack of `make demo`: a limiter, its limits, and a function that is limited."""

from pathlib import Path

from aws_cdk import App, CfnOutput, Duration, RemovalPolicy, Stack
from aws_cdk import aws_lambda as lambda_

from headgate import Limit
from headgate_cdk import RateLimiter

DEMO = Path(__file__).parent / "demo"


class Demo(Stack):
    def __init__(self, scope, id):
        super().__init__(scope, id)

        limiter = RateLimiter(self, "Limiter", removal_policy=RemovalPolicy.DESTROY)
        limiter.add_limits([Limit.per_second("requests", 10, burst=100)], resource="api")

        function = lambda_.Function(
            self,
            "Function",
            runtime=lambda_.Runtime.PYTHON_3_13,
            handler="handler.handler",
            code=lambda_.Code.from_asset(str(DEMO)),
            timeout=Duration.seconds(30),
        )
        limiter.attach(function)

        CfnOutput(self, "Caller", value=function.function_name)
        CfnOutput(self, "Table", value=limiter.table.table_name)


app = App()
Demo(app, "Demo")
app.synth()
