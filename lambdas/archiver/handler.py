"""Lambda's entry: a batch of expired audit events from the table's stream, into S3."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import TYPE_CHECKING, Any

import boto3
from aws_lambda_powertools import Logger, Metrics, Tracer
from aws_lambda_powertools.metrics import MetricUnit
from aws_lambda_powertools.utilities.batch import (
    BatchProcessor,
    EventType,
    process_partial_response,
)
from botocore.config import Config

from archiver.events import Expired, objects, read

if TYPE_CHECKING:
    from aws_lambda_powertools.utilities.data_classes.dynamo_db_stream_event import DynamoDBRecord
    from aws_lambda_powertools.utilities.typing import LambdaContext

logger = Logger()
tracer = Tracer()
metrics = Metrics()

PUTS_AT_ONCE = 8


class Batched(BatchProcessor):
    """Writes what was read before the first record that could not be.

    That one is reported, so it and what follows come again; what comes again must not be in the
    archive yet. If writing fails, all of it does, and the batch comes again from its start.
    """

    def __init__(self) -> None:
        super().__init__(event_type=EventType.DynamoDBStreams)

    def process(self) -> list[tuple[Any, ...]]:
        """What became of each record."""
        results = super().process()
        events: list[Expired] = []
        for how, event, _ in results:
            if how != "success":
                logger.error("a record holds no audit event", extra={"reason": str(event)})
                break
            events.append(event)
        _write(events)
        return results


@metrics.log_metrics(capture_cold_start_metric=True)
@tracer.capture_lambda_handler(capture_response=False)
@logger.inject_lambda_context
def handler(event: dict[str, Any], context: LambdaContext) -> Any:
    """A batch of the stream."""
    metrics.add_metric("Records", MetricUnit.Count, len(event["Records"]))
    return process_partial_response(
        event=event, record_handler=_read, processor=Batched(), context=context
    )


def _read(record: DynamoDBRecord) -> Expired:
    return read(record.raw_event)


@cache
def _s3() -> Any:
    return boto3.client("s3", config=Config(retries={"mode": "standard"}))


def _write(events: list[Expired]) -> None:
    made = objects(os.environ.get("HEADGATE_ARCHIVE_PREFIX", ""), events)

    def put(name: str) -> None:
        _s3().put_object(
            Bucket=os.environ["HEADGATE_ARCHIVE_BUCKET"],
            Key=name,
            Body=made[name],
            ContentType="application/gzip",
        )

    with ThreadPoolExecutor(PUTS_AT_ONCE) as pool:
        # Every one ends before any failure is raised: a write under way could come too late.
        written = [pool.submit(put, name) for name in made]
    for future in written:
        future.result()
    metrics.add_metric("EventsArchived", MetricUnit.Count, len(events))
    logger.info("archived", extra={"events": len(events), "objects": len(made)})
