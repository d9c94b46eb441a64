"""Lambda's entry: API Gateway asks about one request."""

from __future__ import annotations

import os
from functools import cache
from typing import TYPE_CHECKING, Any

from aws_lambda_powertools import Logger, Tracer

from authorizer.gate import Gate, Undecided
from authorizer.settings import Settings
from headgate import SyncRateLimiter
from headgate.observe import EmfMetrics

if TYPE_CHECKING:
    from aws_lambda_powertools.utilities.typing import LambdaContext

logger = Logger()
tracer = Tracer()


@cache
def gate() -> Gate:
    """One for the life of the process: it knows balances, rejections and the issuer's keys."""
    limiter = SyncRateLimiter.from_env(on_event=EmfMetrics(service="authorizer"))
    return Gate(limiter, Settings.parse(os.environ["HEADGATE_AUTHORIZER"]))


@tracer.capture_lambda_handler(capture_response=False)
@logger.inject_lambda_context
def handler(event: dict[str, Any], context: LambdaContext) -> Any:
    """Yes, no, or an error that the API's gateway responses make an answer of."""
    del context
    try:
        return gate().answer(event)
    except Undecided as error:
        logger.error("no decision", extra={"reason": str(error)})  # noqa: TRY400 - no traceback
        raise
