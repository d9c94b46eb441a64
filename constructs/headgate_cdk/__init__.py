"""Headgate for the AWS CDK: a rate limiter as one construct.

from headgate_cdk import RateLimiter

limiter = RateLimiter(self, "Limiter")
limiter.attach(function)
"""

from headgate_cdk.api import RateLimiterApi
from headgate_cdk.authorizer import AuthorizerScope, Caller, RateLimitAuthorizer, TokenOptions
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
    "RateLimiterApi",
    "RateLimiterBase",
    "Namespace",
    "RateLimitAuthorizer",
    "AuthorizerScope",
    "Caller",
    "TokenOptions",
    "AggregatorOptions",
    "AlarmOptions",
    "ArchiveOptions",
    "ArchiverOptions",
    "FunctionOptions",
    "TableOptions",
    "InvalidOption",
]
