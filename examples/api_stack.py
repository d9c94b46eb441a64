"""The stack of `make api`: a limiter, limits for each scope, and the limiter over HTTP."""

from aws_cdk import App, CfnOutput, RemovalPolicy, Stack

from headgate import Limit
from headgate_cdk import RateLimiter, RateLimiterApi


class Limits(Stack):
    def __init__(self, scope, id):
        super().__init__(scope, id)

        limiter = RateLimiter(self, "Limiter", removal_policy=RemovalPolicy.DESTROY)
        limiter.add_limits([Limit.per_minute("calls", 5)], resource="search")
        limiter.add_limits(
            [Limit.per_minute("calls", 60), Limit.per_minute("tokens", 10_000)], resource="chat"
        )
        # Each scope has limits of its own.
        limiter.add_limits([Limit.per_minute("calls", 10)], resource="search@user")
        limiter.add_limits([Limit.per_minute("calls", 20)], resource="search@ip")
        limiter.add_limits([Limit.per_second("calls", 100)], resource="search@global")

        api = RateLimiterApi(self, "Api", limiter=limiter)

        CfnOutput(self, "Url", value=api.url)
        CfnOutput(self, "ApiId", value=api.api.api_id)
        CfnOutput(self, "Table", value=limiter.table.table_name)


app = App()
Limits(app, "Limits")
app.synth()
