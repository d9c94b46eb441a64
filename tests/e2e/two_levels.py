"""An app whose deployment sets two levels, in a table that is there already."""

from aws_cdk import App, Stack

from headgate import Limit
from headgate_cdk import RateLimiter

app = App()
stack = Stack(app, "TwoLevels")
limiter = RateLimiter.from_name(stack, "Limiter", app.node.try_get_context("table"))
ours = limiter.add_limits([Limit.per_minute("rpm", 1)], resource="ours")
theirs = limiter.add_limits([Limit.per_minute("rpm", 1)], resource="theirs")
# In this order, so that there is something to take back.
theirs.node.add_dependency(ours)
app.synth()
