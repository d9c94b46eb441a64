"""Lambda's entry: a batch of bucket changes and changed defaults from the table's stream."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from aws_lambda_powertools import Logger, Metrics, Tracer
from aws_lambda_powertools.utilities.batch import (
    BatchProcessor,
    EventType,
    process_partial_response,
)

if TYPE_CHECKING:
    from aws_lambda_powertools.utilities.data_classes.dynamo_db_stream_event import DynamoDBRecord
    from aws_lambda_powertools.utilities.typing import LambdaContext

logger = Logger()
tracer = Tracer()
metrics = Metrics()
processor = BatchProcessor(event_type=EventType.DynamoDBStreams)


@tracer.capture_lambda_handler
@logger.inject_lambda_context
def handler(event: dict[str, Any], context: LambdaContext) -> Any:
    """Process each record by itself: a bad one fails alone."""
    return process_partial_response(
        event=event, record_handler=_record, processor=processor, context=context
    )


def _record(record: DynamoDBRecord) -> None:
    logger.debug("stream record", extra={"keys": record.dynamodb.keys if record.dynamodb else None})
