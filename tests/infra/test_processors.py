"""The functions on the stream: what reaches them, how, and where failures go."""

import json

import pytest
from aws_cdk import Duration
from aws_cdk import aws_kms as kms
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_logs as logs

from headgate import schema
from headgate.audit import AuditEvent, audit_item
from headgate.records import config_keys
from headgate_cdk import (
    AggregatorOptions,
    ArchiverOptions,
    FunctionOptions,
    InvalidOption,
    RateLimiter,
)
from tests.infra.filters import fires

MAPPING = "AWS::Lambda::EventSourceMapping"
FUNCTION = "AWS::Lambda::Function"
NS = schema.NamespaceId("h3Zk0a-_9Qw")


def pattern(template, function):
    (only,) = template.only(MAPPING, function)["FilterCriteria"]["Filters"]
    return json.loads(only["Pattern"])


def record(pk, sk, event="MODIFY", *, expired=False):
    """A stream record in the shape that AWS sends."""
    made = {
        "eventID": "1",
        "eventName": event,
        "eventSource": "aws:dynamodb",
        "dynamodb": {"Keys": schema.key(pk, sk), "SequenceNumber": "1"},
    }
    if expired:
        made["userIdentity"] = {"type": "Service", "principalId": "dynamodb.amazonaws.com"}
    return made


def bucket(event="MODIFY", **how):
    ref = schema.BucketRef(NS, schema.EntityId("user-1"), schema.Resource("gpt-4"))
    return record(ref.pk(0), schema.STATE, event, **how)


def audit(event="REMOVE", **how):
    stored = audit_item(NS, AuditEvent("2026-01-01T00:00:00.000Z-0a1b2c3d", "user-1", "made"), 1)
    return record(stored["PK"]["S"], stored["SK"]["S"], event, **how)


@pytest.mark.parametrize("event", ["INSERT", "MODIFY", "REMOVE"])
def test_first_acquire_of_a_bucket_and_every_other_change_reach_the_aggregator(default, event):
    assert fires(pattern(default, "Aggregator"), bucket(event))


def test_changed_defaults_of_resource_and_system_reach_the_aggregator(default):
    for resource in (None, schema.Resource("gpt-4")):
        assert fires(pattern(default, "Aggregator"), record(*config_keys(NS, None, resource)))


def test_what_the_aggregator_writes_or_does_not_need_does_not_reach_it(default):
    entity = schema.EntityId("user-1")
    others = [
        record(*config_keys(NS, entity, schema.Resource("gpt-4"))),
        record(*config_keys(NS, entity, None)),
        record(schema.pk_entity(NS, "user-1"), schema.META),
        record(schema.pk_entity(NS, "user-1"), "#USAGE#gpt-4#2026-01-01T00:00:00Z"),
        record(schema.pk_system(NS), "#VERSION"),
        audit(expired=True),
    ]
    assert not any(fires(pattern(default, "Aggregator"), other) for other in others)


def test_audit_archival_fires_for_events_that_expired(default):
    assert fires(pattern(default, "Archiver"), audit(expired=True))


def test_audit_archival_leaves_alone_what_did_not_expire(default):
    archived = pattern(default, "Archiver")
    assert not fires(archived, audit("INSERT"))
    assert not fires(archived, audit())  # deleted by hand
    assert not fires(archived, bucket("REMOVE", expired=True))


@pytest.mark.parametrize("function", ["Aggregator", "Archiver"])
def test_a_bad_record_neither_blocks_nor_loses_the_others(default, function):
    mapping = default.only(MAPPING, function)
    assert mapping["FunctionResponseTypes"] == ["ReportBatchItemFailures"]
    assert mapping["BisectBatchOnFunctionError"] is True
    assert 0 < mapping["MaximumRetryAttempts"] < 10_000
    # Hours are left of the stream's 24 to read the failed records again.
    assert mapping["MaximumRecordAgeInSeconds"] <= 12 * 3600
    assert mapping["StartingPosition"] == "TRIM_HORIZON"
    queue = mapping["DestinationConfig"]["OnFailure"]["Destination"]["Fn::GetAtt"][0]
    assert default.resources[queue]["Type"] == "AWS::SQS::Queue"
    sends = [s for s in default.statements(function) if "sqs:SendMessage" in s["Action"]]
    assert [s["Resource"] for s in sends] == [f"{queue}.Arn"]


def test_the_failure_queue_is_encrypted_and_keeps_two_weeks(default):
    queue = default.only("AWS::SQS::Queue")
    assert queue["SqsManagedSseEnabled"] is True
    assert queue["MessageRetentionPeriod"] == 14 * 86_400
    (denied,) = default.only("AWS::SQS::QueuePolicy")["PolicyDocument"]["Statement"]
    assert denied["Effect"] == "Deny"
    assert denied["Condition"] == {"Bool": {"aws:SecureTransport": "false"}}


@pytest.mark.parametrize("function", ["Aggregator", "Archiver"])
def test_functions_run_on_arm_with_tracing_and_logs_that_end(default, function):
    made = default.only(FUNCTION, function)
    assert made["Runtime"] == "python3.13"
    assert made["Architectures"] == ["arm64"]
    assert made["TracingConfig"] == {"Mode": "Active"}
    assert made["Handler"] == f"{function.lower()}.handler.handler"
    group = default.only("AWS::Logs::LogGroup", f"{function}Logs")
    assert group["RetentionInDays"] == 30
    assert "ManagedPolicyArns" not in default.only("AWS::IAM::Role", function)


def test_functions_learn_their_settings_from_the_environment(default):
    def settings(function):
        variables = default.only(FUNCTION, function)["Environment"]["Variables"]
        return default.resolve(variables)

    (table,) = default.of("AWS::DynamoDB::Table")
    (archive,) = default.of("AWS::S3::Bucket")
    shared = {
        "POWERTOOLS_METRICS_NAMESPACE": "Headgate",
        "POWERTOOLS_LOG_LEVEL": "INFO",
        "POWERTOOLS_TRACE_DISABLED": "false",
    }
    assert settings("Aggregator") == {
        **shared,
        "POWERTOOLS_SERVICE_NAME": "aggregator",
        "HEADGATE_TABLE": table,
        "HEADGATE_USAGE_WINDOWS": "hourly,daily,monthly",
        "HEADGATE_USAGE_RETENTION_DAYS": "90",
        "HEADGATE_MERGE_AFTER_SECONDS": "600",
    }
    assert settings("Archiver") == {
        **shared,
        "POWERTOOLS_SERVICE_NAME": "archiver",
        "HEADGATE_ARCHIVE_BUCKET": archive,
        "HEADGATE_ARCHIVE_PREFIX": "audit/",
    }


def test_the_aggregator_is_called_for_buckets_that_have_gone_quiet(default):
    rule = default.only("AWS::Events::Rule")
    assert rule["ScheduleExpression"] == "rate(5 minutes)"
    (target,) = default.resolve(rule["Targets"])
    function = target["Arn"].partition(".")[0]
    assert default.resources[function]["Properties"]["Handler"].startswith("aggregator.")
    permission = default.only("AWS::Lambda::Permission")
    assert permission["Principal"] == "events.amazonaws.com"


def test_the_aggregator_may_find_buckets_by_every_index(default):
    (on_table,) = [s for s in default.statements("Aggregator") if "dynamodb:Query" in s["Action"]]
    table, *indexes = on_table["Resource"]
    assert indexes == [f"{table}/index/GSI{number}" for number in range(1, 5)]
    assert "dynamodb:Scan" not in on_table["Action"]


def test_every_option_of_the_functions_reaches_them(stack, template_of):
    feeding = {
        "memory": 512,
        "timeout": Duration.minutes(2),
        "batch_size": 100,
        "batching_window": Duration.seconds(30),
        "parallelization": 4,
        "retry_attempts": 3,
        "max_record_age": Duration.hours(1),
        "reserved_concurrency": 7,
    }
    RateLimiter(
        stack,
        "Limiter",
        aggregator=AggregatorOptions(
            **feeding,
            usage_windows=("daily",),
            usage_retention_days=10,
            merge_after=Duration.hours(1),
            sweep_every=Duration.minutes(30),
        ),
        archiver=ArchiverOptions(**feeding),
        functions=FunctionOptions(
            runtime=lambda_.Runtime.PYTHON_3_12,
            architecture=lambda_.Architecture.X86_64,
            log_retention=logs.RetentionDays.ONE_DAY,
            log_level="DEBUG",
            tracing=False,
        ),
    )
    template = template_of(stack)
    for name in ("Aggregator", "Archiver"):
        function, mapping = template.only(FUNCTION, name), template.only(MAPPING, name)
        assert (function["MemorySize"], function["Timeout"]) == (512, 120)
        assert function["ReservedConcurrentExecutions"] == 7
        assert (function["Runtime"], function["Architectures"]) == ("python3.12", ["x86_64"])
        assert "TracingConfig" not in function
        variables = function["Environment"]["Variables"]
        assert variables["POWERTOOLS_LOG_LEVEL"] == "DEBUG"
        assert variables["POWERTOOLS_TRACE_DISABLED"] == "true"
        assert template.only("AWS::Logs::LogGroup", f"{name}Logs")["RetentionInDays"] == 1
        assert (mapping["BatchSize"], mapping["MaximumBatchingWindowInSeconds"]) == (100, 30)
        assert (mapping["ParallelizationFactor"], mapping["MaximumRetryAttempts"]) == (4, 3)
        assert mapping["MaximumRecordAgeInSeconds"] == 3600
    variables = template.only(FUNCTION, "Aggregator")["Environment"]["Variables"]
    assert variables["HEADGATE_USAGE_WINDOWS"] == "daily"
    assert variables["HEADGATE_USAGE_RETENTION_DAYS"] == "10"
    assert variables["HEADGATE_MERGE_AFTER_SECONDS"] == "3600"
    assert template.only("AWS::Events::Rule")["ScheduleExpression"] == "rate(30 minutes)"


def test_without_functions_there_is_a_table_and_nothing_to_fail(stack, template_of):
    limiter = RateLimiter(
        stack, "Limiter", aggregator=False, archive=False, alarms=False, dashboard=False
    )
    assert limiter.aggregator is limiter.archiver is limiter.dead_letters is None
    assert set(template_of(stack).resources) == {
        stack.get_logical_id(limiter.table.node.default_child)
    }


def test_without_the_aggregator_the_archiver_still_has_its_failure_queue(stack, template_of):
    RateLimiter(stack, "Limiter", aggregator=False)
    template = template_of(stack)
    assert template.count(FUNCTION) == 1
    assert template.count("AWS::SQS::Queue") == 1


def test_a_given_key_opens_the_stream_the_queue_and_the_archive_to_the_functions(
    stack, template_of
):
    RateLimiter(stack, "Limiter", encryption_key=kms.Key(stack, "Key"))
    template = template_of(stack)
    assert template.only("AWS::SQS::Queue")["KmsMasterKeyId"]
    for name in ("Aggregator", "Archiver"):
        allowed = {
            action
            for statement in template.statements(name)
            if "kms:" in str(statement["Action"])
            for action in statement["Action"]
        }
        assert {"kms:Decrypt", "kms:GenerateDataKey*"} <= allowed


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"memory": 64}, "aggregator.memory is 64: must be a whole number from 128 to 10240"),
        ({"timeout": Duration.minutes(16)}, "aggregator.timeout is"),
        ({"batch_size": 0}, "aggregator.batch_size is 0"),
        ({"batching_window": Duration.minutes(6)}, "aggregator.batching_window is"),
        ({"parallelization": 11}, "aggregator.parallelization is 11"),
        ({"retry_attempts": -1}, "aggregator.retry_attempts is -1"),
        ({"max_record_age": Duration.hours(25)}, "aggregator.max_record_age is"),
        ({"reserved_concurrency": 0}, "aggregator.reserved_concurrency is 0"),
        ({"usage_windows": ("weekly",)}, "must be one of daily, hourly, monthly"),
        ({"usage_retention_days": 0}, "aggregator.usage_retention_days is 0"),
        ({"merge_after": Duration.seconds(1)}, "aggregator.merge_after is"),
        ({"sweep_every": Duration.seconds(30)}, "aggregator.sweep_every is"),
    ],
)
def test_what_lambda_would_refuse_is_refused_at_once(options, message):
    with pytest.raises(InvalidOption, match=message):
        AggregatorOptions(**options)


def test_an_error_names_the_function_that_it_is_about():
    with pytest.raises(InvalidOption, match=r"archiver.memory is 64"):
        ArchiverOptions(memory=64)


def test_only_python_can_run_the_functions():
    with pytest.raises(InvalidOption, match=r"functions.runtime is 'nodejs22.x'"):
        FunctionOptions(runtime=lambda_.Runtime.NODEJS_22_X)


def test_a_log_level_that_does_not_exist_is_refused():
    with pytest.raises(InvalidOption, match=r"functions.log_level is 'LOUD': must be one of"):
        FunctionOptions(log_level="LOUD")
