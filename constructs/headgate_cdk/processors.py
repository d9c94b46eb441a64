"""The functions on the table's stream, how Lambda feeds them, and where failures go.

The filters decide what Lambda delivers, so what they miss is never seen. Keys are those of the
client's schema: the namespace is in the partition key, so both filters look at the sort key.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from aws_cdk import Duration, Stack
from aws_cdk import aws_events as events
from aws_cdk import aws_events_targets as targets
from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_lambda_event_sources as sources
from aws_cdk import aws_s3 as s3
from aws_cdk import aws_sqs as sqs

from headgate import schema
from headgate.audit import AUDIT
from headgate_cdk.acknowledged import acknowledge
from headgate_cdk.functions import make_function
from headgate_cdk.grants import ENCRYPTS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from aws_cdk import aws_dynamodb as dynamodb
    from aws_cdk import aws_kms as kms
    from constructs import Construct

    from headgate_cdk.grants import Grants
    from headgate_cdk.options import (
        AggregatorOptions,
        ArchiverOptions,
        FunctionOptions,
        ProcessorOptions,
    )

# Buckets, whatever happened to them (the first acquire is an INSERT), and the limits of resources
# and of the system, whose sort key has no resource behind it as an entity's has.
BUCKETS_AND_DEFAULTS: Mapping[str, Any] = {
    "dynamodb": {"Keys": {"SK": {"S": [schema.STATE, schema.CONFIG]}}}
}

# Time to live removes as a service; whoever deletes an event on purpose is a user.
EXPIRED_AUDIT_EVENTS: Mapping[str, Any] = {
    "eventName": ["REMOVE"],
    "userIdentity": {"type": ["Service"], "principalId": ["dynamodb.amazonaws.com"]},
    "dynamodb": {"Keys": {"SK": {"S": [{"prefix": AUDIT}]}}},
}


def make_dead_letters(scope: Construct, key: kms.IKey | None) -> sqs.Queue:
    """The queue of batches that could not be processed: which records, of which shard."""
    queue = sqs.Queue(
        scope,
        "DeadLetters",
        encryption=sqs.QueueEncryption.KMS if key else sqs.QueueEncryption.SQS_MANAGED,
        encryption_master_key=key,
        enforce_ssl=True,
        retention_period=Duration.days(14),
    )
    acknowledge(queue, "AwsSolutions-SQS3", "This is the dead-letter queue")
    return queue


def make_aggregator(
    scope: Construct,
    *,
    table: dynamodb.Table,
    layer: lambda_.ILayerVersion,
    dead_letters: sqs.Queue,
    grants: Grants,
    functions: FunctionOptions,
    options: AggregatorOptions,
) -> lambda_.Function:
    """Usage snapshots, splits and merges, and changed defaults into buckets."""
    function = make_function(
        scope,
        "aggregator",
        description="Headgate: usage snapshots, shards and changed limits, from the stream",
        options=functions,
        memory=options.memory,
        timeout=options.timeout,
        reserved_concurrency=options.reserved_concurrency,
        layer=layer,
        environment={
            "HEADGATE_TABLE": table.table_name,
            "HEADGATE_USAGE_WINDOWS": ",".join(options.usage_windows),
            "HEADGATE_USAGE_RETENTION_DAYS": str(options.usage_retention_days),
            "HEADGATE_MERGE_AFTER_SECONDS": _seconds(options.merge_after),
        },
    )
    grants.admin(function)
    # A bucket that has gone quiet writes nothing, so no record calls for its shards to be merged.
    events.Rule(
        scope,
        "Sweep",
        description="Headgate: look after buckets that have gone quiet",
        schedule=events.Schedule.rate(options.sweep_every),
        targets=[targets.LambdaFunction(function)],
    )
    _feed(function, table, dead_letters, options, BUCKETS_AND_DEFAULTS)
    return function


def make_archiver(
    scope: Construct,
    *,
    table: dynamodb.Table,
    archive: s3.IBucket,
    prefix: str,
    dead_letters: sqs.Queue,
    functions: FunctionOptions,
    options: ArchiverOptions,
) -> lambda_.Function:
    """Expired audit events, as compressed JSON lines, into the archive."""
    function = make_function(
        scope,
        "archiver",
        description="Headgate: expired audit events from the stream to the archive",
        options=functions,
        memory=options.memory,
        timeout=options.timeout,
        reserved_concurrency=options.reserved_concurrency,
        environment={
            "HEADGATE_ARCHIVE_BUCKET": archive.bucket_name,
            "HEADGATE_ARCHIVE_PREFIX": prefix,
        },
    )
    _let_write(function, archive, f"{prefix}*")
    _feed(function, table, dead_letters, options, EXPIRED_AUDIT_EVENTS)
    return function


def _feed(
    function: lambda_.Function,
    table: dynamodb.Table,
    dead_letters: sqs.Queue,
    options: ProcessorOptions,
    pattern: Mapping[str, Any],
) -> None:
    function.add_event_source(
        sources.DynamoEventSource(
            table,
            # From the oldest record there is: LATEST would lose what is written while the
            # mapping is being made.
            starting_position=lambda_.StartingPosition.TRIM_HORIZON,
            batch_size=options.batch_size,
            max_batching_window=options.batching_window,
            parallelization_factor=options.parallelization,
            bisect_batch_on_error=True,
            report_batch_item_failures=True,
            retry_attempts=options.retry_attempts,
            max_record_age=options.max_record_age,
            on_failure=sources.SqsDlq(dead_letters),
            filters=[lambda_.FilterCriteria.filter(dict(pattern))],
        )
    )
    if dead_letters.encryption_master_key is not None and function.role is not None:
        for action in ("kms:GenerateDataKey*", "kms:ReEncrypt*"):
            acknowledge(
                function.role,
                f"AwsSolutions-IAM5[Action::{action}]",
                "The CDK's own grant to send to an encrypted queue",
            )


def _let_write(function: lambda_.Function, archive: s3.IBucket, names: str) -> None:
    """New objects and nothing else: CDK's own grant would also allow tags and legal holds."""
    objects = archive.arn_for_objects(names)
    function.add_to_role_policy(iam.PolicyStatement(actions=["s3:PutObject"], resources=[objects]))
    if archive.encryption_key is not None:
        archive.encryption_key.grant(function, *ENCRYPTS)
    if isinstance(archive, s3.Bucket) and isinstance(archive.node.default_child, s3.CfnBucket):
        logical_id = Stack.of(archive).get_logical_id(archive.node.default_child)
        acknowledge(
            function.role or function,
            f"AwsSolutions-IAM5[Resource::<{logical_id}.Arn>/{names}]",
            "The names of the archive's objects follow from what is in them",
        )


def _seconds(duration: Duration) -> str:
    return str(int(duration.to_seconds()))
