"""The construct: everything that a rate limiter is in an AWS account."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from aws_cdk import ArnFormat, RemovalPolicy, Stack
from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_lambda as lambda_

from headgate_cdk.archive import make_archive
from headgate_cdk.base import RateLimiterBase
from headgate_cdk.catalog import make_catalog
from headgate_cdk.checks import InvalidOption, known, matches
from headgate_cdk.monitoring import Watched, iterator_age, make_alarms, make_dashboard
from headgate_cdk.options import (
    AggregatorOptions,
    AlarmOptions,
    ArchiveOptions,
    ArchiverOptions,
    FunctionOptions,
    TableOptions,
)
from headgate_cdk.processors import make_aggregator, make_archiver, make_dead_letters
from headgate_cdk.table import INDEXES, check_name, make_table

if TYPE_CHECKING:
    from aws_cdk import aws_cloudwatch as cloudwatch
    from aws_cdk import aws_kms as kms
    from aws_cdk import aws_s3 as s3
    from aws_cdk import aws_sqs as sqs
    from constructs import Construct

Options = TypeVar("Options")


class RateLimiter(RateLimiterBase):
    """A rate limiter: one table, its stream processors, an audit archive, alarms and a dashboard.

        limiter = RateLimiter(self, "Limiter")
        limiter.add_limits([Limit.per_minute("rpm", 600)], resource="gpt-4")
        limiter.attach(function)

    Everything has a default. A part that can be left out takes False, and options of its own:
    `archive=False`, `aggregator=AggregatorOptions(memory=512)`.
    """

    archive: s3.IBucket | None
    """Where expired audit events go."""
    aggregator: lambda_.Function | None
    """Keeps usage snapshots and cares for shards."""
    archiver: lambda_.Function | None
    """Writes the archive."""
    dead_letters: sqs.Queue | None
    """Stream batches that could not be processed."""
    alarms: dict[str, cloudwatch.Alarm]
    """By name: ThrottledTableWrites, AggregatorAge, DeadLetters, ..."""
    dashboard: cloudwatch.Dashboard | None
    """The page to open first."""

    def __init__(
        self,
        scope: Construct,
        id: str,  # noqa: A002
        *,
        table_name: str | None = None,
        removal_policy: RemovalPolicy = RemovalPolicy.RETAIN,
        encryption_key: kms.IKey | None = None,
        table: TableOptions | None = None,
        aggregator: AggregatorOptions | bool = True,
        archive: ArchiveOptions | bool = True,
        archiver: ArchiverOptions | None = None,
        functions: FunctionOptions | None = None,
        alarms: AlarmOptions | bool = True,
        dashboard: bool = True,
    ) -> None:
        """Define a rate limiter.

        Args:
            scope: The stack, or a construct in it.
            id: The construct's id in its scope.
            table_name: The table's name. Default: CloudFormation makes one up.
            removal_policy: What becomes of the table and the archive when the stack goes.
                Default: they stay.
            encryption_key: Encrypts the table, the archive and the failure queue. Default:
                keys that AWS owns.
            table: Caps, warm throughput, backups, protection.
            aggregator: Usage snapshots and care for shards. False: neither.
            archive: The bucket for expired audit events. False: they are gone when they expire.
            archiver: The function that writes the archive.
            functions: Runtime, architecture, logs and tracing of all functions.
            alarms: When to call whom. False: none.
            dashboard: False: none.
        """
        super().__init__(scope, id)
        self._functions = functions or FunctionOptions()
        made = make_table(
            self,
            name=table_name,
            removal=removal_policy,
            key=encryption_key,
            options=table or TableOptions(),
        )
        self._set_table(made, made.table_stream_arn, encryption_key)
        self._process(
            made,
            encryption_key,
            removal_policy,
            _chosen(aggregator, AggregatorOptions),
            _chosen(archive, ArchiveOptions),
            archiver,
        )
        self._watch(_chosen(alarms, AlarmOptions), dashboard=dashboard)

    @classmethod
    def from_attributes(
        cls,
        scope: Construct,
        id: str,  # noqa: A002
        *,
        table_name: str | None = None,
        table_arn: str | None = None,
        stream_arn: str | None = None,
        encryption_key: kms.IKey | None = None,
        layer_arn: str | None = None,
        functions: FunctionOptions | None = None,
    ) -> RateLimiterBase:
        """Refer to a limiter that is deployed elsewhere.

        Args:
            scope: The stack, or a construct in it.
            id: The construct's id in its scope.
            table_name: Its table, in this account and region. Give this or `table_arn`.
            table_arn: Its table, anywhere.
            stream_arn: The table's stream, if something here is to read it.
            encryption_key: The table's key, if it has one: grants need it.
            layer_arn: A layer version to attach. Default: this stack makes its own from the
                client that is installed here.
            functions: For the function that `add_limits` and its like need.
        """
        return _DeployedRateLimiter(
            scope,
            id,
            table_arn=_arn(scope, table_name, table_arn),
            stream_arn=stream_arn,
            key=encryption_key,
            layer_arn=layer_arn,
            functions=functions or FunctionOptions(),
        )

    @classmethod
    def from_name(
        cls,
        scope: Construct,
        id: str,  # noqa: A002
        table_name: str,
    ) -> RateLimiterBase:
        """Refer to a limiter of this account and region by the name of its table."""
        return cls.from_attributes(scope, id, table_name=table_name)

    def metric_iterator_age(self) -> cloudwatch.Metric:
        """How far the aggregator is behind the stream, in milliseconds."""
        if self.aggregator is None:
            raise InvalidOption("aggregator", value=False, allowed="without it nothing has an age")
        return iterator_age(self.aggregator)

    def metric_dead_letters(self) -> cloudwatch.Metric:
        """Batches in the failure queue."""
        if self.dead_letters is None:
            raise InvalidOption(
                "aggregator", value=False, allowed="without functions there is no failure queue"
            )
        return self.dead_letters.metric_approximate_number_of_messages_visible()

    def _process(
        self,
        table: dynamodb.Table,
        key: kms.IKey | None,
        removal: RemovalPolicy,
        aggregator: AggregatorOptions | None,
        archive: ArchiveOptions | None,
        archiver: ArchiverOptions | None,
    ) -> None:
        if archive is None and archiver is not None:
            raise InvalidOption("archiver", archiver, "has nothing to write to: archive is False")
        self.aggregator = self.archiver = self.archive = self.dead_letters = None
        if aggregator is None and archive is None:
            return
        self.dead_letters = make_dead_letters(self, key)
        if aggregator is not None:
            self.aggregator = make_aggregator(
                self,
                table=table,
                layer=self.layer,
                dead_letters=self.dead_letters,
                grants=self.grants,
                functions=self._functions,
                options=aggregator,
            )
        if archive is not None:
            self.archive = make_archive(self, removal=removal, key=key, options=archive)
            if archive.database is not None:
                make_catalog(self, self.archive, prefix=archive.prefix, database=archive.database)
            self.archiver = make_archiver(
                self,
                table=table,
                archive=self.archive,
                prefix=archive.prefix,
                dead_letters=self.dead_letters,
                functions=self._functions,
                options=archiver or ArchiverOptions(),
            )

    def _watch(self, alarms: AlarmOptions | None, *, dashboard: bool) -> None:
        functions = {"Aggregator": self.aggregator, "Archiver": self.archiver}
        watched = Watched(
            self._metrics,
            {name: function for name, function in functions.items() if function is not None},
            self.dead_letters,
        )
        self.alarms = {} if alarms is None else make_alarms(self, watched, alarms)
        self.dashboard = (
            make_dashboard(self, watched, list(self.alarms.values())) if dashboard else None
        )


class _DeployedRateLimiter(RateLimiterBase):
    """A limiter of another stack, account or region."""

    def __init__(
        self,
        scope: Construct,
        id: str,  # noqa: A002
        *,
        table_arn: str,
        stream_arn: str | None,
        key: kms.IKey | None,
        layer_arn: str | None,
        functions: FunctionOptions,
    ) -> None:
        super().__init__(scope, id)
        self._functions = functions
        table = dynamodb.Table.from_table_attributes(
            self,
            "Table",
            table_arn=table_arn,
            table_stream_arn=stream_arn,
            encryption_key=key,
            global_indexes=list(INDEXES),
        )
        self._set_table(table, stream_arn, key)
        self._layer_arn = layer_arn

    def _make_layer(self) -> lambda_.ILayerVersion:
        if self._layer_arn is None:
            return super()._make_layer()
        return lambda_.LayerVersion.from_layer_version_arn(self, "Layer", self._layer_arn)


def _chosen(option: Options | bool, default: type[Options]) -> Options | None:  # noqa: FBT001
    """True: the default, False: nothing, else what was given."""
    if option is True:
        return default()
    if option is False:
        return None
    return option


def _arn(scope: Construct, name: str | None, arn: str | None) -> str:
    if (name is None) == (arn is None):
        raise InvalidOption("table_name", name, "give either this or table_arn, and not both")
    if arn is not None:
        if known(arn):
            matches(
                "table_arn",
                arn,
                r"arn:[^:]+:dynamodb:[^:]+:[^:]+:table/[A-Za-z0-9_.-]{3,255}",
                "must be the ARN of a DynamoDB table, arn:aws:dynamodb:REGION:ACCOUNT:table/NAME",
            )
        return arn
    check_name("table_name", name)
    return Stack.of(scope).format_arn(
        service="dynamodb",
        resource="table",
        resource_name=name,
        arn_format=ArnFormat.SLASH_RESOURCE_NAME,
    )
