"""Lambda's entry: a batch of stream records, or the schedule's call to sweep."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
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

from aggregator.records import Change, parse
from aggregator.service import Aggregator, Report, Settings

if TYPE_CHECKING:
    from aws_lambda_powertools.utilities.data_classes.dynamo_db_stream_event import DynamoDBRecord
    from aws_lambda_powertools.utilities.typing import LambdaContext

logger = Logger()
tracer = Tracer()
metrics = Metrics()

# What is left to write snapshots, store how far a change got and answer.
MARGIN = 10_000  # milliseconds


class SweepFailed(RuntimeError):
    """Some of a sweep's work failed: Lambda and the alarm are to know."""


class Together(BatchProcessor):
    """Reads records one by one, and processes them all at once: a snapshot is written once for
    all the records of a batch. A record fails alone, or with those that share its snapshot.
    """

    def __init__(self, work: Callable[[list[Change]], Report]) -> None:
        super().__init__(event_type=EventType.DynamoDBStreams)
        self._work = work

    def process(self) -> list[tuple[Any, ...]]:
        """What became of each record."""
        results = super().process()
        read = {change.sequence: record for how, change, record in results if how == "success"}
        report = self._work([change for how, change, _ in results if how == "success"])
        for sequence, error in report.failed.items():
            self.failure_handler(read[sequence], (type(error), error, error.__traceback__))
        self._log()
        return results

    def _log(self) -> None:
        """Each reason once: in an outage it is the same for hundreds of records."""
        reasons = Counter(f"{kind.__name__}: {error}" for kind, error, _ in self.exceptions if kind)
        for reason, number in reasons.most_common(10):
            logger.error("records failed", extra={"reason": reason, "records": number})


@cache
def aggregator() -> Aggregator:
    """One for the life of the process."""

    def connect() -> Any:
        settings = Config(
            retries={"total_max_attempts": 1, "mode": "standard"},
            connect_timeout=2,
            read_timeout=5,
            max_pool_connections=64,
        )
        return boto3.client("dynamodb", config=settings)

    settings = Settings.from_env()
    # Two limiters of one account are told apart: the construct's `metric_admitted` asks for this.
    if "table" not in metrics.default_dimensions:
        metrics.set_default_dimensions(table=settings.table)
    return Aggregator.over_boto(settings, connect)


@metrics.log_metrics(capture_cold_start_metric=True)
@tracer.capture_lambda_handler(capture_response=False)
@logger.inject_lambda_context
def handler(event: dict[str, Any], context: LambdaContext) -> Any:
    """A batch of the stream, or a sweep."""

    def time_left() -> bool:
        return context.get_remaining_time_in_millis() > MARGIN

    if "Records" not in event:
        return _sweep(time_left)

    def work(changes: list[Change]) -> Report:
        return _told(aggregator().process(changes, time_left))

    metrics.add_metric("Records", MetricUnit.Count, len(event["Records"]))
    processor = Together(work)
    try:
        return process_partial_response(
            event=event, record_handler=_read, processor=processor, context=context
        )
    finally:
        metrics.add_metric("RecordsFailed", MetricUnit.Count, len(processor.fail_messages))


def _read(record: DynamoDBRecord) -> Change:
    return parse(record.raw_event)


@tracer.capture_method(capture_response=False)
def _sweep(time_left: Callable[[], bool]) -> Mapping[str, int]:
    metrics.add_metric("Sweeps", MetricUnit.Count, 1)
    report = _told(aggregator().sweep(time_left))
    if report.failed:
        for error in report.failed.values():
            logger.error("a part of the sweep failed", exc_info=error)
        raise SweepFailed(f"{len(report.failed)} parts of the sweep failed")
    return report.counts


def _told(report: Report) -> Report:
    for name, number in report.counts.items():
        metrics.add_metric(name, MetricUnit.Count, number)
    logger.info("done", extra={**report.counts, "failed": len(report.failed)})
    return report
