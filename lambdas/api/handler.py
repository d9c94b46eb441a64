"""Lambda's entry: requests of an HTTP API."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from functools import cache
from typing import TYPE_CHECKING, Any

import boto3
from aws_lambda_powertools import Logger, Tracer
from aws_lambda_powertools.event_handler import APIGatewayHttpResolver, Response
from botocore.config import Config

from api import answers, schemas
from api.answers import Answer
from api.health import health
from api.service import Service
from api.signing import Signer, from_secrets_manager
from headgate import HeadgateError, SyncRateLimiter, TableError, ValidationError
from headgate.observe import EmfMetrics

if TYPE_CHECKING:
    from aws_lambda_powertools.utilities.typing import LambdaContext

logger = Logger()
tracer = Tracer()
app = APIGatewayHttpResolver()


@cache
def service() -> Service:
    """Made at the first request, and kept as long as the process."""
    secret = os.environ.get("HEADGATE_SIGNING_KEY")
    return Service(
        SyncRateLimiter.from_env(on_event=EmfMetrics(service="api")),
        frozenset(os.environ.get("HEADGATE_SCOPES", "user,ip,api_key,global").split(",")),
        Signer(from_secrets_manager(_secrets(), secret)) if secret else None,
    )


def _secrets() -> Any:
    settings = Config(connect_timeout=1, read_timeout=2, retries={"total_max_attempts": 2})
    return boto3.client("secretsmanager", config=settings)


@tracer.capture_lambda_handler(capture_response=False)
@logger.inject_lambda_context
def handler(event: dict[str, Any], context: LambdaContext) -> dict[str, Any]:
    """A request of an HTTP API, payload 2.0."""
    return app.resolve(event, context)


@app.post("/v1/ratelimit/check")
def check() -> Response[str]:
    return _answered("Check", lambda: service().check)


@app.post("/v1/ratelimit/batch")
def batch() -> Response[str]:
    return _answered("Batch", lambda: service().batch)


@app.post("/v1/ratelimit/lease/adjust")
def adjust() -> Response[str]:
    return _answered("Adjust", lambda: service().adjust)


@app.post("/v1/ratelimit/lease/release")
def release() -> Response[str]:
    return _answered("Release", lambda: service().release)


# Any text, lines included: what is wrong with it is for the limiter to say.
@app.get(r"/v1/ratelimit/status/[\s\S]+")
def status() -> Response[str]:
    given = app.current_event.path_parameters or {}
    scope = (app.current_event.query_string_parameters or {}).get("scope")
    return _sent(_tried(lambda: service().status(given["identifier"], given["resource"], scope)))


@app.get("/health")
def healthy() -> Response[str]:
    return _sent(_tried(lambda: health(service().limiter)))


@app.not_found
def elsewhere(_error: Exception) -> Response[str]:
    message = f"there is no {app.current_event.http_method} {app.current_event.path}"
    return _sent(Answer(404, {"error": "not_found", "message": message}))


def _answered(
    kind: str, operation: Callable[[], Callable[[Mapping[str, Any]], Answer]]
) -> Response[str]:
    def run() -> Answer:
        try:
            text = app.current_event.decoded_body
        except ValueError as error:
            raise ValidationError(f"the body is not text: {error}") from error
        return operation()(schemas.parse(kind, text))

    return _sent(_tried(run))


def _tried(run: Callable[[], Answer]) -> Answer:
    try:
        return run()
    except HeadgateError as error:
        if isinstance(error, TableError):
            logger.exception("the table refuses this function")
        return answers.failed(error)


def _sent(answer: Answer) -> Response[str]:
    return Response(answer.status, "application/json", answer.text(), dict(answer.headers))
