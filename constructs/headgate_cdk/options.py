"""What can be chosen: one frozen value object for each part of a RateLimiter.

Every field has a default. A field that cannot be right is refused where it is written, before
anything is synthesized.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from aws_cdk import Duration
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_logs as logs
from aws_cdk import aws_s3 as s3

from headgate_cdk import checks
from headgate_cdk.checks import InvalidOption

if TYPE_CHECKING:
    from aws_cdk import aws_dynamodb as dynamodb
    from aws_cdk import aws_sns as sns

# What an on-demand table can serve from its first second; DynamoDB refuses to warm it to less.
LEAST_WARM_READS = 12_000
LEAST_WARM_WRITES = 4_000
MOST_UNITS = 10**9

USAGE_WINDOWS = ("hourly", "daily", "monthly")
LOG_LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")


@dataclass(frozen=True, kw_only=True)
class TableOptions:
    """The table. It is billed on demand; the caps bound what a runaway caller can cost."""

    max_read_units: int | None = None
    """Most read units a second, for the table and for each index. Default: no cap."""
    max_write_units: int | None = None
    """Most write units a second, for the table and for each index. Default: no cap."""
    warm_read_units: int | None = None
    """Read units a second that the table serves at once. Default: what DynamoDB starts with."""
    warm_write_units: int | None = None
    """Write units a second that the table serves at once. Default: what DynamoDB starts with."""
    encryption: dynamodb.TableEncryption | None = None
    """Default: the limiter's `encryption_key` if it has one, else a key that AWS owns."""
    point_in_time_recovery: bool = True
    """Continuous backups. Default: on."""
    recovery_days: int | None = None
    """For how many days, 1 to 35. Default: 35."""
    deletion_protection: bool | None = None
    """Default: on, unless the limiter's removal policy is to destroy the table."""
    contributor_insights: bool = False
    """CloudWatch's list of the hottest and most throttled keys. Default: off (it is billed)."""

    def __post_init__(self) -> None:
        checks.whole("table.max_read_units", self.max_read_units, least=1, most=MOST_UNITS)
        checks.whole("table.max_write_units", self.max_write_units, least=1, most=MOST_UNITS)
        checks.whole(
            "table.warm_read_units", self.warm_read_units, least=LEAST_WARM_READS, most=MOST_UNITS
        )
        checks.whole(
            "table.warm_write_units",
            self.warm_write_units,
            least=LEAST_WARM_WRITES,
            most=MOST_UNITS,
        )
        checks.whole("table.recovery_days", self.recovery_days, least=1, most=35)
        if self.recovery_days is not None and not self.point_in_time_recovery:
            raise InvalidOption(
                "table.recovery_days",
                self.recovery_days,
                "has no meaning while point_in_time_recovery is off",
            )


@dataclass(frozen=True, kw_only=True)
class ArchiveOptions:
    """The bucket to which expired audit events go."""

    bucket: s3.IBucket | None = None
    """A bucket of your own, left as it is. Default: one is made."""
    bucket_name: str | None = None
    """Default: CloudFormation makes up a name."""
    prefix: str = "audit/"
    """What every object's name starts with."""
    cold_after: Duration | None = field(default_factory=lambda: Duration.days(90))
    """When objects move to `cold_class`; None: never."""
    cold_class: s3.StorageClass = field(
        default_factory=lambda: s3.StorageClass.GLACIER_INSTANT_RETRIEVAL
    )
    """Default: Glacier Instant Retrieval, which Athena reads without a restore."""
    expire_after: Duration | None = field(default_factory=lambda: Duration.days(7 * 366))
    """When objects are deleted; None: never. Default: seven years."""
    auto_delete_objects: bool = False
    """Empty the bucket when it is destroyed. Needs the removal policy DESTROY."""
    access_logs: s3.IBucket | None = None
    """Where S3 writes who read the archive. Default: nowhere."""
    database: str | None = None
    """A Glue database to make, with the archive as its table `audit`, for Athena. Default: none."""

    def __post_init__(self) -> None:
        checks.matches(
            "archive.prefix",
            self.prefix,
            r"|([A-Za-z0-9_.=-]+/)+",
            "must be empty, or letters, digits and _ . = - in parts that each end with '/'",
        )
        if self.database is not None:
            checks.matches(
                "archive.database",
                self.database,
                r"[a-z0-9_]{1,255}",
                "must be lowercase letters, digits and _",
            )
        years = Duration.days(100 * 366)
        checks.span("archive.cold_after", self.cold_after, least=Duration.days(1), most=years)
        checks.span("archive.expire_after", self.expire_after, least=Duration.days(1), most=years)
        if _not_after(self.expire_after, self.cold_after):
            raise InvalidOption(
                "archive.expire_after",
                self.expire_after,
                f"must be later than archive.cold_after, which is {self.cold_after}",
            )
        if self.bucket is not None and self.bucket_name is not None:
            raise InvalidOption(
                "archive.bucket_name", self.bucket_name, "cannot be given beside archive.bucket"
            )


def _not_after(end: Duration | None, start: Duration | None) -> bool:
    if end is None or start is None or end.is_unresolved() or start.is_unresolved():
        return False
    return end.to_milliseconds() <= start.to_milliseconds()


@dataclass(frozen=True, kw_only=True)
class FunctionOptions:
    """What all functions of the limiter have in common."""

    runtime: lambda_.Runtime = field(default_factory=lambda: lambda_.Runtime.PYTHON_3_13)
    architecture: lambda_.Architecture = field(default_factory=lambda: lambda_.Architecture.ARM_64)
    log_retention: logs.RetentionDays = logs.RetentionDays.ONE_MONTH
    log_level: str = "INFO"
    tracing: bool = True
    """X-Ray. Default: on."""

    def __post_init__(self) -> None:
        checks.one_of("functions.log_level", self.log_level, LOG_LEVELS)
        if self.runtime.family != lambda_.RuntimeFamily.PYTHON:
            raise InvalidOption(
                "functions.runtime", self.runtime.name, "must be a Python runtime, 3.11 or newer"
            )


@dataclass(frozen=True, kw_only=True)
class ProcessorOptions:
    """A function on the table's stream, and how Lambda feeds it."""

    memory: int = 256
    """Megabytes."""
    timeout: Duration = field(default_factory=lambda: Duration.minutes(1))
    batch_size: int = 500
    """Most records in one invocation."""
    batching_window: Duration = field(default_factory=lambda: Duration.seconds(5))
    """How long to wait for a full batch."""
    parallelization: int = 1
    """Batches of one stream shard that run at once; records of one item stay in order."""
    retry_attempts: int = 10
    """How often a failed batch is tried again, in halves, before it goes to the failure queue."""
    max_record_age: Duration = field(default_factory=lambda: Duration.hours(6))
    """The oldest record to try. The stream keeps 24 hours: the rest is for whoever mends it."""
    reserved_concurrency: int | None = None
    """Default: the account's pool."""

    def __post_init__(self) -> None:
        part = type(self).__name__.removesuffix("Options").lower()
        second, minute = Duration.seconds(1), Duration.minutes(1)
        checks.whole(f"{part}.memory", self.memory, least=128, most=10_240)
        checks.span(f"{part}.timeout", self.timeout, least=second, most=Duration.minutes(15))
        checks.whole(f"{part}.batch_size", self.batch_size, least=1, most=10_000)
        checks.span(
            f"{part}.batching_window",
            self.batching_window,
            least=Duration.seconds(0),
            most=Duration.minutes(5),
        )
        checks.whole(f"{part}.parallelization", self.parallelization, least=1, most=10)
        checks.whole(f"{part}.retry_attempts", self.retry_attempts, least=0, most=10_000)
        checks.span(
            f"{part}.max_record_age", self.max_record_age, least=minute, most=Duration.hours(24)
        )
        checks.whole(
            f"{part}.reserved_concurrency", self.reserved_concurrency, least=1, most=100_000
        )


@dataclass(frozen=True, kw_only=True)
class AggregatorOptions(ProcessorOptions):
    """The function that keeps usage snapshots and cares for shards."""

    usage_windows: tuple[str, ...] = USAGE_WINDOWS
    """Which snapshots to keep: hourly, daily, monthly."""
    usage_retention_days: int = 90
    """When a snapshot expires, counted from the end of its window."""
    merge_after: Duration = field(default_factory=lambda: Duration.minutes(10))
    """How long shards must be quiet before two of them become one."""
    sweep_every: Duration = field(default_factory=lambda: Duration.minutes(5))
    """How often to look for buckets that have gone quiet."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for window in self.usage_windows:
            checks.one_of("aggregator.usage_windows", window, USAGE_WINDOWS)
        checks.whole(
            "aggregator.usage_retention_days", self.usage_retention_days, least=1, most=36_600
        )
        checks.span(
            "aggregator.merge_after",
            self.merge_after,
            least=Duration.minutes(1),
            most=Duration.days(1),
        )
        checks.span(
            "aggregator.sweep_every",
            self.sweep_every,
            least=Duration.minutes(1),
            most=Duration.days(1),
        )


@dataclass(frozen=True, kw_only=True)
class ArchiverOptions(ProcessorOptions):
    """The function that writes expired audit events to the archive."""

    batching_window: Duration = field(default_factory=lambda: Duration.minutes(1))
    """Longer than the aggregator's: an archive wants few, larger objects."""


@dataclass(frozen=True, kw_only=True)
class AlarmOptions:
    """When to call for help. With no topic the alarms are there to be looked at."""

    topic: sns.ITopic | None = None
    """Told when an alarm goes off, and when it is over."""
    throttles: int = 10
    """Throttled requests in a minute, in three minutes of five."""
    iterator_age: Duration = field(default_factory=lambda: Duration.minutes(15))
    """How far a function may fall behind the stream."""
    errors: int = 1
    """Failed invocations in five minutes, twice in a row."""
    dead_letters: int = 1
    """Batches in the failure queue."""

    def __post_init__(self) -> None:
        for name in ("throttles", "errors", "dead_letters"):
            checks.whole(f"alarms.{name}", getattr(self, name), least=1, most=10**9)
        checks.span(
            "alarms.iterator_age",
            self.iterator_age,
            least=Duration.seconds(1),
            most=Duration.hours(24),
        )
