"""Events as metrics and spans, read back as CloudWatch and OpenTelemetry read them."""

from __future__ import annotations

import io
import json
import subprocess
import sys

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode

from headgate import Event, Limit, RateLimiterUnavailable, RateLimitExceeded
from headgate.observe import MOST_VALUES, EmfMetrics, Spans, both
from tests.behaviour.backends import simulator

LIMITS = [Limit.per_day("calls", 3), Limit.per_day("tokens", 1000)]


@pytest.fixture
def backend(request):
    with simulator(request) as opened:
        yield opened
        opened.close()


def metrics(stream):
    """(name, dimensions) -> values, by the rules of the embedded metric format."""
    found = {}
    for line in stream.getvalue().splitlines():
        document = json.loads(line)
        for directive in document["_aws"]["CloudWatchMetrics"]:
            assert directive["Namespace"] == "Headgate"
            for names in directive["Dimensions"]:
                where = tuple((name, document[name]) for name in names)
                for metric in directive["Metrics"]:
                    value = document[metric["Name"]]
                    values = value if isinstance(value, list) else [value]
                    assert len(values) <= 100
                    found.setdefault((metric["Name"], where), []).extend(values)
    return found


def drive(limiter):
    """Two acquires that pass, one that does not."""
    with limiter.acquire("user-1", "api", {"calls": 1, "tokens": 300}):
        pass
    with limiter.acquire("user-1", "api", {"calls": 2}):
        pass
    with pytest.raises(RateLimitExceeded), limiter.acquire("user-1", "api", {"calls": 1}):
        pass


@pytest.mark.parametrize("every", [0.0, 3600.0])
def test_requests_are_counted_by_resource_and_outcome_and_tokens_by_limit(backend, every):
    stream = io.StringIO()
    callback = EmfMetrics(service="chat", stream=stream, every=every)
    drive(backend.limiter(limits=LIMITS, on_event=callback))
    assert bool(stream.getvalue()) is not bool(every)
    callback.flush()
    found = metrics(stream)
    at = (("service", "chat"), ("resource", "api"))
    assert sum(found["Requests", (*at, ("outcome", "admitted"))]) == 2
    assert sum(found["Requests", (*at, ("outcome", "rejected"))]) == 1
    assert len(found["Duration", (*at, ("outcome", "admitted"))]) == 2
    assert sum(found["Tokens", (*at, ("limit", "calls"))]) == 3
    assert sum(found["Tokens", (*at, ("limit", "tokens"))]) == 300
    assert "user-1" not in stream.getvalue()


def test_an_outage_shows_as_fallbacks_and_as_a_breaker_that_opened(backend):
    stream = io.StringIO()
    limiter = backend.limiter(limits=LIMITS, attempts=1, on_event=EmfMetrics(stream=stream))
    limiter.cut()
    for policy in ("allow", "block") * 3:
        try:
            with limiter.acquire("user-1", "api", {"calls": 1}, on_unavailable=policy):
                pass
        except RateLimiterUnavailable:
            assert policy == "block"
    found = metrics(stream)
    assert sum(found["Requests", (("resource", "api"), ("outcome", "degraded"))]) == 3
    assert sum(found["Requests", (("resource", "api"), ("outcome", "unavailable"))]) == 3
    assert found["BreakerOpen", ()] == [1]


def test_what_was_lost_contended_or_failed_is_counted_apart():
    stream = io.StringIO()
    callback = EmfMetrics(stream=stream)
    callback(Event("adjust_lost", "api"))
    callback(Event("rejected", "api", {"ms": 4, "contended": True, "remembered": False}))
    callback(Event("failed", "api", {"ms": 4, "error": "AccessDenied"}))
    callback(Event("breaker_closed"))
    found = metrics(stream)
    assert found["Lost", (("resource", "api"), ("operation", "adjust_lost"))] == [1]
    assert found["Contended", (("resource", "api"),)] == [1]
    assert found["Errors", (("resource", "api"), ("error", "AccessDenied"))] == [1]
    assert found["BreakerOpen", ()] == [0]


def test_lines_are_written_when_their_time_has_come_or_they_are_full():
    stream, now = io.StringIO(), [1000.0]
    callback = EmfMetrics(stream=stream, every=60, clock=lambda: now[0])
    callback(Event("admitted", "api", {"ms": 1}))
    assert not stream.getvalue()
    now[0] += 60
    callback(Event("admitted", "api", {"ms": 3}))
    document = json.loads(stream.getvalue())
    assert (document["Requests"], document["Duration"]) == (2, [1, 3])
    assert document["_aws"]["Timestamp"] == 1_060_000
    for _ in range(2 * MOST_VALUES + 1):
        callback(Event("admitted", "api", {"ms": 1}))
    assert len(stream.getvalue().splitlines()) == 3
    callback.flush()
    assert sum(metrics(stream)["Requests", (("resource", "api"), ("outcome", "admitted"))]) == 203


def test_standard_output_is_where_lines_go_by_default(capsys):
    EmfMetrics()(Event("admitted", "api", {"ms": 1}))
    assert json.loads(capsys.readouterr().out)["outcome"] == "admitted"


@pytest.fixture
def spans():
    """A tracer, and what it has exported."""
    provider, exporter = TracerProvider(), InMemorySpanExporter()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    yield provider.get_tracer("test"), exporter.get_finished_spans
    provider.shutdown()


def test_each_acquire_is_a_span_in_the_span_it_happened_in(backend, spans):
    tracer, finished = spans
    seen = []
    limiter = backend.limiter(limits=LIMITS, on_event=both(Spans(tracer), seen.append))
    with tracer.start_as_current_span("request") as parent:
        drive(limiter)
    acquires = [span for span in finished() if span.name == "headgate.acquire"]
    assert len(acquires) == len(seen) == 3
    assert {span.parent.span_id for span in acquires} == {parent.context.span_id}
    assert [span.attributes["headgate.outcome"] for span in acquires] == [
        "admitted",
        "admitted",
        "rejected",
    ]
    assert acquires[0].attributes["headgate.tokens.tokens"] == 300
    assert all(span.status.status_code is StatusCode.UNSET for span in acquires)
    assert all(span.start_time <= span.end_time for span in acquires)
    assert "user-1" not in str([dict(span.attributes) for span in acquires])


def test_only_an_outage_or_a_failure_is_an_error_and_the_rest_are_events(spans):
    tracer, finished = spans
    callback = Spans(tracer)
    with tracer.start_as_current_span("request"):
        callback(Event("unavailable", "api", {"ms": 7, "reason": "the cable is cut"}))
        callback(Event("breaker_opened"))
    acquire, request = finished()
    assert acquire.status.status_code is StatusCode.ERROR
    assert acquire.status.description == "the cable is cut"
    assert acquire.end_time - acquire.start_time == 7_000_000
    assert [event.name for event in request.events] == ["headgate.breaker_opened"]


def test_importing_it_needs_no_opentelemetry():
    script = "import headgate.observe, sys; sys.exit('opentelemetry' in sys.modules)"
    subprocess.run([sys.executable, "-c", script], check=True)
