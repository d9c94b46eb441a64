"""Events made into metrics and spans: callbacks for a limiter's `on_event`.

limiter = SyncRateLimiter.from_env(on_event=EmfMetrics(service="chat"))

`EmfMetrics` writes CloudWatch's embedded metric format, which Lambda's log agent makes metrics of:
no request, no permission, no dependency. `Spans` needs the API of OpenTelemetry. `both(...)` joins
callbacks. No event carries the id of an entity, so no metric or span does.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TextIO

from headgate.core import Event, seconds

if TYPE_CHECKING:
    from opentelemetry.trace import Tracer

# Events that end an acquire; the event's name is the outcome.
OUTCOMES = ("admitted", "rejected", "degraded", "unavailable", "failed")
MOST_VALUES = 100  # of one metric in one line: the format's bound
BREAKER = {"breaker_opened": 1, "breaker_closed": 0}


def both(*callbacks: Callable[[Event], None]) -> Callable[[Event], None]:
    """All of these, in order."""

    def callback(event: Event) -> None:
        for each in callbacks:
            each(event)

    return callback


@dataclass(slots=True)
class _Series:
    """What has been counted for one set of dimensions."""

    counts: Counter[str] = field(default_factory=Counter)
    values: dict[str, list[int]] = field(default_factory=dict)  # of which all are wanted


class EmfMetrics:
    """Metrics as lines of JSON on standard output.

    By default each event is a line. With `every`, events are added up and written after so many
    seconds, by the first event that comes later or by `flush()`: call that where a process ends.
    """

    def __init__(
        self,
        *,
        service: str | None = None,
        namespace: str = "Headgate",
        every: float = 0.0,
        stream: TextIO | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._constant = {"service": service} if service else {}
        self._namespace = namespace
        self._every = seconds("every", every)
        self._stream = stream
        self._clock = clock
        self._lock = threading.Lock()
        self._pending: dict[tuple[tuple[str, str], ...], _Series] = {}
        self._written = clock()
        self._full = False

    def __call__(self, event: Event) -> None:
        """Takes an event."""
        with self._lock:
            self._count(event)
            if self._full or self._clock() - self._written >= self._every:
                self._write()

    def flush(self) -> None:
        """Writes what has been added up."""
        with self._lock:
            self._write()

    def _count(self, event: Event) -> None:
        resource = {"resource": event.resource} if event.resource else {}
        told = event.attributes
        if event.name in OUTCOMES:
            by_outcome = self._series(**resource, outcome=event.name)
            by_outcome.counts["Requests"] += 1
            took = by_outcome.values.setdefault("Duration", [])
            took.append(_whole(told.get("ms")))
            self._full = len(took) >= MOST_VALUES
            tokens = told.get("tokens")
            for limit, amount in tokens.items() if isinstance(tokens, dict) else ():
                self._series(**resource, limit=limit).counts["Tokens"] += amount
            if told.get("contended"):
                self._series(**resource).counts["Contended"] += 1
            if event.name == "failed":
                self._series(**resource, error=str(told.get("error"))).counts["Errors"] += 1
        elif event.name in BREAKER:
            self._series().values.setdefault("BreakerOpen", []).append(BREAKER[event.name])
        else:
            self._series(**resource, operation=event.name).counts["Lost"] += 1

    def _series(self, **dimensions: str) -> _Series:
        key = tuple((self._constant | dimensions).items())
        return self._pending.setdefault(key, _Series())

    def _write(self) -> None:
        self._written, self._full = self._clock(), False
        pending, self._pending = self._pending, {}
        # Looked up now: a runtime may put another stream in its place.
        stream = self._stream or sys.stdout
        for dimensions, series in pending.items():
            stream.write(json.dumps(self._line(dict(dimensions), series)) + "\n")
        stream.flush()

    def _line(self, dimensions: dict[str, str], series: _Series) -> dict[str, Any]:
        metrics: dict[str, Any] = {**series.counts, **series.values}
        units = {"Duration": "Milliseconds", "BreakerOpen": "None"}
        described = [{"Name": name, "Unit": units.get(name, "Count")} for name in metrics]
        directive = {
            "Namespace": self._namespace,
            "Dimensions": [list(dimensions)],
            "Metrics": described,
        }
        about = {"Timestamp": int(self._written * 1000), "CloudWatchMetrics": [directive]}
        return {"_aws": about, **dimensions, **metrics}


class Spans:
    """A span for each acquire, a child of the span it happened in. The event comes when it is
    over, so the span is made then, with the time it began.
    """

    def __init__(self, tracer: Tracer | None = None) -> None:
        from opentelemetry import trace  # noqa: PLC0415 - optional

        self._trace = trace
        self._tracer = tracer or trace.get_tracer("headgate")

    def __call__(self, event: Event) -> None:
        """Takes an event. What does not end an acquire becomes an event of the current span."""
        attributes = dict(_attributes(event))
        if event.name not in OUTCOMES:
            self._trace.get_current_span().add_event(f"headgate.{event.name}", attributes)
            return
        end = time.time_ns()
        start = end - _whole(event.attributes.get("ms")) * 1_000_000
        attributes["headgate.outcome"] = event.name
        span = self._tracer.start_span(
            "headgate.acquire",
            kind=self._trace.SpanKind.CLIENT,
            attributes=attributes,
            start_time=start,
        )
        if event.name in ("unavailable", "failed"):
            # A rejection is what the limiter is for; this is not.
            why = event.attributes.get("reason") or event.attributes.get("error")
            span.set_status(self._trace.StatusCode.ERROR, str(why))
        span.end(end)


def _attributes(event: Event) -> Any:
    if event.resource:
        yield "headgate.resource", event.resource
    for name, value in event.attributes.items():
        if name == "tokens" and isinstance(value, dict):
            yield from ((f"headgate.tokens.{limit}", amount) for limit, amount in value.items())
        elif name != "ms" and isinstance(value, bool | int | float | str):
            yield f"headgate.{name}", value


def _whole(value: object) -> int:
    return value if isinstance(value, int) else 0
