"""What there is to watch, and when it calls for help."""

import io
import json
import re

import pytest
from aws_cdk import Duration
from aws_cdk import aws_sns as sns

from headgate.core import Event
from headgate.observe import OUTCOMES, EmfMetrics
from headgate_cdk import AlarmOptions, InvalidOption, RateLimiter

ALARM = "AWS::CloudWatch::Alarm"


def alarms(template):
    return {
        name.removeprefix("Limiter").rpartition("Alarm")[0]: resource["Properties"]
        for name, resource in template.of(ALARM).items()
    }


def test_every_way_to_fall_behind_has_an_alarm(default):
    watched = {
        name: (alarm["Namespace"], alarm["MetricName"]) for name, alarm in alarms(default).items()
    }
    assert watched == {
        "ThrottledTableReads": ("AWS/DynamoDB", "ReadThrottleEvents"),
        "ThrottledTableWrites": ("AWS/DynamoDB", "WriteThrottleEvents"),
        "ThrottledGSI1Writes": ("AWS/DynamoDB", "WriteThrottleEvents"),
        "ThrottledGSI2Writes": ("AWS/DynamoDB", "WriteThrottleEvents"),
        "ThrottledGSI3Writes": ("AWS/DynamoDB", "WriteThrottleEvents"),
        "ThrottledGSI4Writes": ("AWS/DynamoDB", "WriteThrottleEvents"),
        "AggregatorAge": ("AWS/Lambda", "IteratorAge"),
        "AggregatorErrors": ("AWS/Lambda", "Errors"),
        "ArchiverAge": ("AWS/Lambda", "IteratorAge"),
        "ArchiverErrors": ("AWS/Lambda", "Errors"),
        "DeadLetters": ("AWS/SQS", "ApproximateNumberOfMessagesVisible"),
    }


def test_alarms_look_at_this_limiters_parts(default):
    seen = alarms(default)
    (table,) = default.of("AWS::DynamoDB::Table")
    dimensions = default.resolve(seen["ThrottledGSI2Writes"]["Dimensions"])
    assert {d["Name"]: d["Value"] for d in dimensions} == {
        "TableName": table,
        "GlobalSecondaryIndexName": "GSI2",
    }
    ((_, function),) = (d.values() for d in default.resolve(seen["AggregatorAge"]["Dimensions"]))
    assert default.resources[function]["Properties"]["Handler"].startswith("aggregator.")


def test_an_idle_table_raises_no_alarm_and_each_says_what_it_means(default):
    for alarm in alarms(default).values():
        assert alarm["TreatMissingData"] == "notBreaching"
        assert alarm["AlarmDescription"].startswith("Headgate: ")
        assert "AlarmActions" not in alarm


def test_every_option_of_the_alarms_reaches_them(stack, template_of):
    limiter = RateLimiter(
        stack,
        "Limiter",
        alarms=AlarmOptions(
            topic=sns.Topic(stack, "Topic"),
            throttles=99,
            iterator_age=Duration.minutes(1),
            errors=5,
            dead_letters=7,
        ),
    )
    seen = alarms(template_of(stack))
    assert set(limiter.alarms) == set(seen)
    assert seen["ThrottledTableWrites"]["Threshold"] == 99
    assert seen["AggregatorAge"]["Threshold"] == 60_000
    assert seen["ArchiverErrors"]["Threshold"] == 5
    assert seen["DeadLetters"]["Threshold"] == 7
    for alarm in seen.values():
        (action,) = alarm["AlarmActions"]
        assert action["Ref"].startswith("Topic")
        assert alarm["OKActions"] == [action]


def test_alarms_and_dashboard_can_be_switched_off(stack, template_of):
    limiter = RateLimiter(stack, "Limiter", alarms=False, dashboard=False)
    template = template_of(stack)
    assert limiter.alarms == {}
    assert limiter.dashboard is None
    assert template.count(ALARM) == template.count("AWS::CloudWatch::Dashboard") == 0


def test_only_what_is_there_is_watched(stack, template_of):
    RateLimiter(stack, "Limiter", aggregator=False, archive=False)
    template = template_of(stack)
    assert all(name.startswith("Throttled") for name in alarms(template))
    assert "Age of the stream" not in dashboard(template)


def dashboard(template):
    return template.resolve(template.only("AWS::CloudWatch::Dashboard")["DashboardBody"])


def test_the_dashboard_shows_traffic_cost_and_health(default):
    widgets = json.loads(dashboard(default))["widgets"]
    titles = [widget["properties"].get("title") for widget in widgets]
    assert titles == [
        "Alarms",
        "Admitted and rejected (a minute)",
        "Latency of a write (ms)",
        "Acquires by outcome (a minute)",
        "Acquires by resource (a minute)",
        "Duration of an acquire (ms, p99)",
        "Tokens taken (a minute)",
        "Without the table",
        "Contended, refused by the table, lost",
        "Write units consumed",
        "Read units consumed",
        "Throttled requests",
        "Age of the stream (ms)",
        "Errors and failed batches",
        "Duration of the functions (ms, p95)",
    ]
    assert len(widgets[0]["properties"]["alarms"]) == default.count(ALARM)
    # Rows fill the page, and no two widgets overlap.
    for row in {widget["y"] for widget in widgets}:
        in_row = sorted((w["x"], w["width"]) for w in widgets if w["y"] == row)
        assert sum(width for _, width in in_row) == 24
        assert [x for x, _ in in_row] == [
            sum(width for _, width in in_row[:i]) for i in range(len(in_row))
        ]


def searched(template):
    """Title -> label -> the namespace, name, outcome and statistic that are searched for."""
    found = {}
    for widget in json.loads(dashboard(template))["widgets"]:
        for line in widget["properties"].get("metrics", []):
            if "expression" in line[0]:
                match = SEARCH.fullmatch(line[0]["expression"])
                label = found.setdefault(widget["properties"]["title"], {})
                label[line[0].get("label")] = match.groups()
    return found


SEARCH = re.compile(
    r"(?:(SUM|MAX)\()?SEARCH\('Namespace=\"(\w+)\" MetricName=\"(\w+)\"(?: outcome=\"(\w+)\")?', "
    r"'(\w+)', 60\)\)?"
)


def test_the_dashboard_finds_what_clients_tell_whatever_their_resources_are_called(default):
    found = searched(default)
    assert found["Acquires by outcome (a minute)"] == {
        outcome: ("SUM", "Headgate", "Requests", outcome, "Sum") for outcome in OUTCOMES
    }
    assert found["Without the table"] == {
        "Passed": ("SUM", "Headgate", "Requests", "degraded", "Sum"),
        "Blocked": ("SUM", "Headgate", "Requests", "unavailable", "Sum"),
        "A breaker opened": ("MAX", "Headgate", "BreakerOpen", None, "Maximum"),
    }
    # With no label of ours, each line has that of what was found.
    assert found["Acquires by resource (a minute)"] == {
        None: (None, "Headgate", "Requests", None, "Sum")
    }


@pytest.mark.parametrize("service", [None, "chat"])
def test_every_metric_that_a_client_writes_is_on_the_dashboard_and_no_other(default, service):
    told = {}
    for line in written(service):
        (directive,) = line["_aws"]["CloudWatchMetrics"]
        for metric in directive["Metrics"]:
            told.setdefault((directive["Namespace"], metric["Name"]), set()).add(
                line.get("outcome")
            )
    asked = [terms for lines in searched(default).values() for terms in lines.values()]
    assert {terms[1:3] for terms in asked} == set(told)
    for _, namespace, name, outcome, _ in asked:
        assert outcome is None or outcome in told[namespace, name]


def written(service):
    """A line for every kind of event."""
    stream = io.StringIO()
    metrics = EmfMetrics(service=service, stream=stream)
    for outcome in OUTCOMES:
        metrics(Event(outcome, "api", {"ms": 3, "tokens": {"rpm": 1}, "contended": True}))
    for name in ("breaker_opened", "breaker_closed", "release_lost"):
        metrics(Event(name, None, {}))
    return map(json.loads, stream.getvalue().splitlines())


def lines(widget):
    """CloudWatch's shorthand: '.' is the value of the line above."""
    shown, above = [], []
    for line in widget["properties"]["metrics"]:
        options = line[-1] if isinstance(line[-1], dict) else {}
        names = [above[i] if name == "." else name for i, name in enumerate(line[:-1])]
        above = names
        shown.append((names, options.get("label")))
    return shown


def test_the_dashboard_splits_cost_by_index(default):
    (units,) = [
        widget
        for widget in json.loads(dashboard(default))["widgets"]
        if widget["properties"].get("title") == "Write units consumed"
    ]
    labels = [label for _, label in lines(units)]
    assert labels == ["Table", "GSI1", "GSI2", "GSI3", "GSI4"]


def test_every_metric_is_there_to_use(stack):
    limiter = RateLimiter(stack, "Limiter", table_name="limits")
    metrics = {
        "Admitted": limiter.metric_admitted(),
        "ConditionalCheckFailedRequests": limiter.metric_rejected(),
        "ReadThrottleEvents": limiter.metric_throttled_reads(),
        "WriteThrottleEvents": limiter.metric_throttled_writes("GSI1"),
        "ConsumedReadCapacityUnits": limiter.metric_consumed_read_units("GSI2"),
        "ConsumedWriteCapacityUnits": limiter.metric_consumed_write_units(),
        "SuccessfulRequestLatency": limiter.metric_latency("p50"),
        "IteratorAge": limiter.metric_iterator_age(),
        "ApproximateNumberOfMessagesVisible": limiter.metric_dead_letters(),
    }
    for name, metric in metrics.items():
        assert metric.metric_name == name
    assert metrics["Admitted"].namespace == "Headgate"
    assert set(metrics["Admitted"].dimensions) == {"service", "table"}
    assert metrics["WriteThrottleEvents"].dimensions["GlobalSecondaryIndexName"] == "GSI1"
    assert metrics["SuccessfulRequestLatency"].statistic == "p50"


def test_a_limiter_deployed_elsewhere_has_the_tables_metrics(stack):
    metric = RateLimiter.from_name(stack, "Limiter", "limits").metric_rejected()
    assert metric.dimensions == {"TableName": "limits"}


def test_a_metric_of_what_is_not_there_is_refused(stack):
    limiter = RateLimiter(stack, "Limiter", aggregator=False, archive=False)
    with pytest.raises(InvalidOption, match="index is 'GSI9': must be one of GSI1"):
        limiter.metric_throttled_writes("GSI9")
    with pytest.raises(InvalidOption, match="aggregator is False"):
        limiter.metric_iterator_age()
    with pytest.raises(InvalidOption, match="aggregator is False"):
        limiter.metric_dead_letters()


@pytest.mark.parametrize(
    "options",
    [{"throttles": 0}, {"errors": -1}, {"dead_letters": 1.5}, {"iterator_age": Duration.days(2)}],
)
def test_thresholds_that_mean_nothing_are_refused(options):
    (name,) = options
    with pytest.raises(InvalidOption, match=rf"alarms.{name} is"):
        AlarmOptions(**options)
