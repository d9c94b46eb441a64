"""What to watch: metrics, alarms and the dashboard.

| question             | answered by                                                            |
|----------------------|------------------------------------------------------------------------|
| who gets in?         | `Admitted`, which the aggregator counts from the stream                |
| who is turned away?  | the table's failed conditions: a rejection that was asked for is one   |
| what does it cost?   | consumed units of the table and of each index, which should be near 0  |
| does it keep up?     | throttles, age of the stream, errors, batches in the failure queue     |
| how do callers fare? | what their clients tell (`headgate.observe.EmfMetrics`)                |
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from aws_cdk import Duration
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_cloudwatch_actions as actions

from headgate.observe import OUTCOMES
from headgate_cdk.checks import InvalidOption
from headgate_cdk.functions import METRICS_NAMESPACE
from headgate_cdk.table import INDEXES

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from aws_cdk import aws_dynamodb as dynamodb
    from aws_cdk import aws_lambda as lambda_
    from aws_cdk import aws_sqs as sqs
    from constructs import Construct

    from headgate_cdk.options import AlarmOptions

MINUTE = Duration.minutes(1)
FIVE_MINUTES = Duration.minutes(5)
WIDTH = 24

# Rejections that the client remembered make no request, and a wrong guess of a clause makes one
# more: the count is what DynamoDB saw, close to but not the number of refused callers.
REJECTED = "ConditionalCheckFailedRequests"


Line: TypeAlias = "cloudwatch.Metric | cloudwatch.MathExpression"
Row: TypeAlias = "dict[str, dict[str, Line]]"
"""Titles of graphs -> labels of lines -> metrics. What a search finds has labels of its own."""


class TableMetrics:
    """Metrics that the table itself, or the aggregator about it, publishes."""

    def __init__(self, table: dynamodb.ITable) -> None:
        self._table = table

    def admitted(self) -> cloudwatch.Metric:
        return cloudwatch.Metric(
            namespace=METRICS_NAMESPACE,
            metric_name="Admitted",
            dimensions_map={"service": "aggregator", "table": self._table.table_name},
            statistic=cloudwatch.Stats.SUM,
            period=MINUTE,
        )

    def rejected(self) -> cloudwatch.Metric:
        return self.of(REJECTED)

    def throttled(self, operation: str, index: str | None = None) -> cloudwatch.Metric:
        return self.of(f"{operation}ThrottleEvents", index)

    def consumed(self, operation: str, index: str | None = None) -> cloudwatch.Metric:
        return self.of(f"Consumed{operation}CapacityUnits", index)

    def latency(self, statistic: str = "p99") -> cloudwatch.Metric:
        return cloudwatch.Metric(
            namespace="AWS/DynamoDB",
            metric_name="SuccessfulRequestLatency",
            dimensions_map={"TableName": self._table.table_name, "Operation": "UpdateItem"},
            statistic=statistic,
            period=MINUTE,
        )

    def of(self, name: str, index: str | None = None) -> cloudwatch.Metric:
        """The sum of a metric of the table, or of one of its indexes."""
        if index is not None and index not in INDEXES:
            raise InvalidOption("index", index, f"must be one of {', '.join(INDEXES)}")
        dimensions = {"TableName": self._table.table_name}
        if index is not None:
            dimensions["GlobalSecondaryIndexName"] = index
        return cloudwatch.Metric(
            namespace="AWS/DynamoDB",
            metric_name=name,
            dimensions_map=dimensions,
            statistic=cloudwatch.Stats.SUM,
            period=MINUTE,
        )


@dataclass(frozen=True)
class Watched:
    """The parts of a limiter that there are to watch."""

    table: TableMetrics
    functions: Mapping[str, lambda_.Function]
    dead_letters: sqs.Queue | None


def iterator_age(function: lambda_.IFunction) -> cloudwatch.Metric:
    """How old the newest record that the function got was."""
    return function.metric("IteratorAge", statistic=cloudwatch.Stats.MAXIMUM, period=MINUTE)


def make_alarms(
    scope: Construct, watched: Watched, options: AlarmOptions
) -> dict[str, cloudwatch.Alarm]:
    """The alarms, by what they are about."""
    alarms = {
        **_throttle_alarms(scope, watched.table, options),
        **_function_alarms(scope, watched.functions, options),
    }
    if watched.dead_letters is not None:
        depth = watched.dead_letters.metric_approximate_number_of_messages_visible(
            statistic=cloudwatch.Stats.MAXIMUM, period=MINUTE
        )
        alarms["DeadLetters"] = _alarm(
            scope,
            "DeadLetters",
            depth,
            threshold=options.dead_letters,
            says="Stream records could not be processed: read the queue, mend, replay",
        )
    if options.topic is not None:
        action = actions.SnsAction(options.topic)
        for alarm in alarms.values():
            alarm.add_alarm_action(action)
            alarm.add_ok_action(action)
    return alarms


def _throttle_alarms(
    scope: Construct, table: TableMetrics, options: AlarmOptions
) -> dict[str, cloudwatch.Alarm]:
    # An index that cannot keep up holds back the table's writes; its reads hold back nobody.
    throttles = {
        "TableReads": (table.throttled("Read"), "Reads of the table are throttled"),
        "TableWrites": (table.throttled("Write"), "Writes to the table are throttled"),
        **{
            f"{index}Writes": (table.throttled("Write", index), f"Writes to {index} are throttled")
            for index in INDEXES
        },
    }
    return {
        f"Throttled{name}": _alarm(
            scope,
            f"Throttled{name}",
            metric,
            threshold=options.throttles,
            of=5,
            datapoints=3,
            says=f"{says}: a key is hotter than its partition, or a cap is too low",
        )
        for name, (metric, says) in throttles.items()
    }


def _function_alarms(
    scope: Construct, functions: Mapping[str, lambda_.Function], options: AlarmOptions
) -> dict[str, cloudwatch.Alarm]:
    alarms = {}
    for name, function in functions.items():
        alarms[f"{name}Age"] = _alarm(
            scope,
            f"{name}Age",
            iterator_age(function),
            threshold=int(options.iterator_age.to_milliseconds()),
            of=3,
            says=f"The {name.lower()} falls behind the stream, which keeps 24 hours",
        )
        alarms[f"{name}Errors"] = _alarm(
            scope,
            f"{name}Errors",
            function.metric_errors(period=FIVE_MINUTES),
            threshold=options.errors,
            of=2,
            says=f"The {name.lower()} fails: its batches are tried again until they are too old",
        )
    return alarms


def _alarm(
    scope: Construct,
    name: str,
    metric: cloudwatch.IMetric,
    *,
    threshold: int,
    says: str,
    of: int = 1,
    datapoints: int | None = None,
) -> cloudwatch.Alarm:
    return cloudwatch.Alarm(
        scope,
        f"{name}Alarm",
        metric=metric,
        threshold=threshold,
        evaluation_periods=of,
        datapoints_to_alarm=datapoints or of,
        comparison_operator=cloudwatch.ComparisonOperator.GREATER_THAN_OR_EQUAL_TO_THRESHOLD,
        # A table that nobody uses is not in trouble.
        treat_missing_data=cloudwatch.TreatMissingData.NOT_BREACHING,
        alarm_description=f"Headgate: {says}",
    )


def make_dashboard(
    scope: Construct, watched: Watched, alarms: Sequence[cloudwatch.Alarm]
) -> cloudwatch.Dashboard:
    """One page: who gets in, what it costs, whether it keeps up."""
    dashboard = cloudwatch.Dashboard(scope, "Dashboard", default_interval=Duration.hours(6))
    if alarms:
        dashboard.add_widgets(
            cloudwatch.AlarmStatusWidget(title="Alarms", width=WIDTH, height=3, alarms=list(alarms))
        )
    rows = [_traffic(watched.table), _callers(), _in_trouble(), _cost(watched.table)]
    if watched.functions:
        rows.append(_processing(watched))
    for row in rows:
        width = WIDTH // len(row)
        dashboard.add_widgets(
            *(
                cloudwatch.GraphWidget(
                    title=title,
                    left=[metric.with_(label=label) for label, metric in lines.items()],
                    width=width,
                    height=6,
                )
                for title, lines in row.items()
            )
        )
    return dashboard


def _traffic(table: TableMetrics) -> Row:
    return {
        "Admitted and rejected (a minute)": {
            "Admitted": table.admitted(),
            "Rejected": table.rejected(),
        },
        "Latency of a write (ms)": {name: table.latency(name) for name in ("p50", "p99")},
    }


def _callers() -> Row:
    """What clients tell: only those that were given `EmfMetrics`, of all tables of the account."""
    return {
        "Acquires by outcome (a minute)": {
            outcome: _found("Requests", outcome=outcome, joined="SUM") for outcome in OUTCOMES
        },
        "Acquires by resource (a minute)": {"": _found("Requests")},
        "Duration of an acquire (ms, p99)": {"": _found("Duration", "p99")},
    }


def _in_trouble() -> Row:
    return {
        "Tokens taken (a minute)": {"": _found("Tokens")},
        "Without the table": {
            "Passed": _found("Requests", outcome="degraded", joined="SUM"),
            "Blocked": _found("Requests", outcome="unavailable", joined="SUM"),
            "A breaker opened": _found("BreakerOpen", "Maximum", joined="MAX"),
        },
        "Contended, refused by the table, lost": {
            name: _found(name, joined="SUM") for name in ("Contended", "Errors", "Lost")
        },
    }


def _found(
    name: str, statistic: str = "Sum", *, outcome: str | None = None, joined: str | None = None
) -> cloudwatch.MathExpression:
    """All metrics of this name, a line for each or joined to one. Resources, limits and services
    are not known here. The search names no dimensions, for it would have to name all of them, and
    there are metrics with `service` and without.
    """
    terms = [f'Namespace="{METRICS_NAMESPACE}"', f'MetricName="{name}"']
    if outcome is not None:
        terms.append(f'outcome="{outcome}"')
    search = f"SEARCH('{' '.join(terms)}', '{statistic}', {int(MINUTE.to_seconds())})"
    return cloudwatch.MathExpression(
        expression=search if joined is None else f"{joined}({search})",
        using_metrics={},
        period=MINUTE,
    )


def _cost(table: TableMetrics) -> Row:
    parts = {"Table": None, **{index: index for index in INDEXES}}
    return {
        "Write units consumed": {
            part: table.consumed("Write", index) for part, index in parts.items()
        },
        "Read units consumed": {
            part: table.consumed("Read", index) for part, index in parts.items()
        },
        "Throttled requests": {
            "Table reads": table.throttled("Read"),
            **{f"{part} writes": table.throttled("Write", index) for part, index in parts.items()},
        },
    }


def _processing(watched: Watched) -> Row:
    functions = watched.functions
    failures: dict[str, Line] = {
        f"{name} errors": function.metric_errors(period=MINUTE)
        for name, function in functions.items()
    }
    if watched.dead_letters is not None:
        failures["In the failure queue"] = (
            watched.dead_letters.metric_approximate_number_of_messages_visible(
                statistic=cloudwatch.Stats.MAXIMUM, period=MINUTE
            )
        )
    return {
        "Age of the stream (ms)": {
            name: iterator_age(function) for name, function in functions.items()
        },
        "Errors and failed batches": failures,
        "Duration of the functions (ms, p95)": {
            name: function.metric_duration(statistic="p95", period=MINUTE)
            for name, function in functions.items()
        },
    }
