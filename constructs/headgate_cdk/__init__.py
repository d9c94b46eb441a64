"""Headgate for the AWS CDK: a rate limiter as one construct.

from headgate_cdk import RateLimiter

limiter = RateLimiter(self, "Limiter")
limiter.attach(function)
"""

from headgate_cdk.base import RateLimiterBase
from headgate_cdk.checks import InvalidOption
from headgate_cdk.grants import Namespace
from headgate_cdk.limiter import RateLimiter
from headgate_cdk.options import (
    AggregatorOptions,
    AlarmOptions,
    ArchiveOptions,
    ArchiverOptions,
    FunctionOptions,
    TableOptions,
)

__all__ = [
    "RateLimiter",
    "RateLimiterBase",
    "Namespace",
    "AggregatorOptions",
    "AlarmOptions",
    "ArchiveOptions",
    "ArchiverOptions",
    "FunctionOptions",
    "TableOptions",
    "InvalidOption",
]
