"""What the aggregator does with a batch and on its schedule. Lambda and Powertools are outside."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

from aggregator import care, propagate, sweep
from aggregator.care import Hot, Memory, Task
from aggregator.propagate import Job, Run
from aggregator.records import BucketChange, Change, DefaultsChange
from aggregator.sweep import Marker
from aggregator.usage import count, fold
from headgate.breaker import Breaker
from headgate.bucket import Milliseconds
from headgate.core import Core
from headgate.core import Settings as CoreSettings
from headgate.drivers.boto import BotoDriver
from headgate.effects import Flow
from headgate.errors import ValidationError
from headgate.usage import WINDOWS, Window, checked_window

T = TypeVar("T")

ALIGNED_AT_ONCE = 8
# A function that fails fast uses up its retries: it keeps trying until its own time is up.
NEVER_OPENS = 10**9


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What the construct's options become."""

    table: str
    windows: tuple[Window, ...] = WINDOWS
    retention_days: int = 90
    merge_after: Milliseconds = Milliseconds(600_000)

    @classmethod
    def from_env(cls) -> Settings:
        """As the construct sets them."""
        given = os.environ
        windows = given.get("HEADGATE_USAGE_WINDOWS", ",".join(WINDOWS))
        return cls(
            table=given["HEADGATE_TABLE"],
            windows=tuple(checked_window(name) for name in windows.split(",") if name),
            retention_days=_number("HEADGATE_USAGE_RETENTION_DAYS", 90),
            merge_after=Milliseconds(1000 * _number("HEADGATE_MERGE_AFTER_SECONDS", 600)),
        )


def _number(name: str, default: int) -> int:
    value = os.environ.get(name, str(default))
    if not value.isdecimal():
        raise ValidationError(f"{name} must be a whole number: {value!r}")
    return int(value)


@dataclass(slots=True)
class Report:
    """What came of a batch or a sweep: counts, and which records failed with what."""

    counts: dict[str, int] = field(default_factory=dict)
    failed: dict[int, Exception] = field(default_factory=dict)

    def add(self, name: str, number: int = 1) -> None:
        """Counts something."""
        self.counts[name] = self.counts.get(name, 0) + number


class Threads:
    """Runs flows over boto3."""

    def __init__(self, driver: BotoDriver) -> None:
        self._driver = driver
        self._pool = ThreadPoolExecutor(ALIGNED_AT_ONCE, thread_name_prefix="aligning")

    def __call__(self, flow: Flow[T]) -> T:
        return self._driver.run(flow)

    def each(self, flows: Iterable[Flow[T]]) -> list[T]:
        """All flows, some at once. The first failure is raised, and no more are begun."""
        return list(self._pool.map(self._driver.run, flows))


class Aggregator:
    """One process of the function: it holds connections, and a memory of what it has seen."""

    def __init__(self, settings: Settings, core: Core, run: Run) -> None:
        self.settings = settings
        self._core = core
        self._run = run
        self._memory = Memory()

    @classmethod
    def over_boto(cls, settings: Settings, connect: Callable[[], Any]) -> Aggregator:
        """The one that Lambda runs."""
        core = Core(
            CoreSettings(table=settings.table, attempts=3), breaker=Breaker(failures=NEVER_OPENS)
        )
        return cls(settings, core, Threads(BotoDriver(connect, settings.table, core.clock)))

    def process(self, changes: Sequence[Change], time_left: Callable[[], bool]) -> Report:
        """Usage first, then the buckets' care, then changed limits, which may take long."""
        report = Report()
        buckets = [change for change in changes if isinstance(change, BucketChange)]
        self._count(buckets, report)
        for cause, work in self._due(buckets, report):
            _attempt(cause.sequence, report, work)
        for change in changes:
            if isinstance(change, DefaultsChange):
                work = partial(self._propagate, change, time_left, report)
                _attempt(change.sequence, report, work)
        return report

    def sweep(self, time_left: Callable[[], bool]) -> Report:
        """Goes on with unfinished changes, then looks at sharded buckets while there is time.
        One that fails does not keep the others waiting.
        """
        report, core = Report(), self._core
        for number, job in enumerate(self._run(propagate.unfinished(core))):
            _attempt(number, report, partial(self._carry_out, job, time_left, report))
        for number, marker in enumerate(self._run(sweep.markers(core)), len(report.failed)):
            if not time_left():
                break
            _attempt(number, report, partial(self._look, marker, report))
        return report

    def _count(self, changes: Sequence[BucketChange], report: Report) -> None:
        tallies = fold(changes, self.settings.windows)
        counted = self._run(count(self._core, tallies, self.settings.retention_days))
        report.add("SnapshotsWritten", counted.written)
        report.add("SnapshotsReplayed", counted.replayed)
        for tally, error in counted.failed:
            report.failed |= {change.sequence: error for change in tally.changes}
        admitted = (c for c in changes if any(a > 0 for a in c.drawn.values()))
        report.add("Admitted", sum(c.sequence not in report.failed for c in admitted))

    def _due(
        self, changes: Sequence[BucketChange], report: Report
    ) -> list[tuple[Hot | Task, Callable[[], object]]]:
        """What these records call for."""
        memory, core = self._memory, self._core
        return [
            *((hot, partial(self._split, hot, report)) for hot in memory.hot(changes, core.now())),
            *((task, partial(self._mark, task)) for task in memory.unmarked(changes)),
            *((task, partial(self._complete, task)) for task in care.half_split(changes)),
        ]

    def _split(self, hot: Hot, report: Report) -> None:
        if self._run(care.split(self._core, hot)):
            report.add("Splits")

    def _mark(self, task: Task) -> None:
        self._run(care.mark(self._core, task.ref))
        self._memory.marked(task.ref)

    def _complete(self, task: Task) -> None:
        self._run(care.complete(self._core, task.ref))

    def _look(self, marker: Marker, report: Report) -> None:
        report.add("BucketsLookedAt")
        report.add("Merges", self._run(sweep.look(self._core, marker, self.settings.merge_after)))

    def _propagate(
        self, change: DefaultsChange, time_left: Callable[[], bool], report: Report
    ) -> None:
        job = self._run(propagate.begin(self._core, change))
        if job is not None:
            self._carry_out(job, time_left, report)

    def _carry_out(self, job: Job, time_left: Callable[[], bool], report: Report) -> None:
        report.add("BucketsAligned", propagate.carry_out(self._run, self._core, job, time_left))


def _attempt(cause: int, report: Report, work: Callable[[], object]) -> None:
    """What fails does not stop the rest, and is handed back: it is delivered again."""
    try:
        work()
    except Exception as error:  # noqa: BLE001 - handed back as the failure of its cause
        report.failed[cause] = error
