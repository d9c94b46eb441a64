"""Usage as the stream's aggregator keeps it: windows, snapshots, and reading them back.

| index | partition                | sort                                       |
|-------|--------------------------|--------------------------------------------|
| table | {ns}/ENTITY#{id}         | #USAGE#{resource}#{window}#{start}         |
| GSI2  | {ns}/RESOURCE#{resource} | USAGE#{window}#{start}#{id}                |

A snapshot's counters are its attributes `u_{limit}`, in millitokens: with the prefix, no name of
a limit can be that of another attribute.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Literal, NamedTuple

from headgate.bucket import Millitokens
from headgate.core import Core
from headgate.effects import Call, Flow, Item
from headgate.errors import ValidationError
from headgate.limit import whole
from headgate.namespaces import opened
from headgate.reads import batch_get
from headgate.schema import (
    EntityId,
    NamespaceId,
    Resource,
    checked_entity,
    checked_resource,
    in_namespace,
    key,
    pk_entity,
    pk_resource,
)

Window = Literal["hourly", "daily", "monthly"]
WINDOWS: tuple[Window, ...] = ("hourly", "daily", "monthly")
USAGE = "#USAGE#"
COUNTER = "u_"
MAX_PAGE = 1_000
_AFTER_ALL = "~"  # sorts after every time


def checked_window(value: object) -> Window:
    """The window's name, checked."""
    for window in WINDOWS:
        if value == window:
            return window
    raise ValidationError(f"window must be one of {', '.join(WINDOWS)}: {value!r}")


def window_start(window: Window, moment: datetime) -> datetime:
    """When the window that holds this moment began."""
    start = moment.astimezone(UTC).replace(minute=0, second=0, microsecond=0)
    if window == "hourly":
        return start
    return start.replace(hour=0) if window == "daily" else start.replace(hour=0, day=1)


def window_end(window: Window, start: datetime) -> datetime:
    """When the window that began then is over."""
    if window == "hourly":
        return start + timedelta(hours=1)
    if window == "daily":
        return start + timedelta(days=1)
    return (start + timedelta(days=31)).replace(day=1)


def stamp(moment: datetime) -> str:
    """A time as keys have it: sorts as time does."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


class SnapshotRef(NamedTuple):
    """Which snapshot: an entity's use of a resource in one window."""

    ns: NamespaceId
    entity_id: EntityId
    resource: Resource
    window: Window
    start: str

    @classmethod
    def at(
        cls,
        ns: NamespaceId,
        entity_id: EntityId,
        resource: Resource,
        window: Window,
        moment: datetime,
    ) -> SnapshotRef:
        """The snapshot that counts what happens at this moment."""
        return cls(ns, entity_id, resource, window, stamp(window_start(window, moment)))

    @property
    def key(self) -> Item:
        """Its primary key."""
        sk = f"{USAGE}{self.resource}#{self.window}#{self.start}"
        return key(pk_entity(self.ns, self.entity_id), sk)

    @property
    def by_resource(self) -> Item:
        """Its key in GSI2."""
        return {
            "GSI2PK": {"S": pk_resource(self.ns, self.resource)},
            "GSI2SK": {"S": f"USAGE#{self.window}#{self.start}#{self.entity_id}"},
        }

    def identity(self) -> Item:
        """The attributes beside the primary key that never change."""
        return {
            "entity_id": {"S": self.entity_id},
            "resource": {"S": self.resource},
            "window": {"S": self.window},
            "window_start": {"S": self.start},
            **self.by_resource,
            **in_namespace(self.ns, pk_entity(self.ns, self.entity_id)),
        }

    def expires(self, retention_days: int) -> int:
        """When it may go, in seconds since the epoch: so long after its window is over."""
        end = window_end(self.window, datetime.fromisoformat(self.start))
        return int((end + timedelta(days=retention_days)).timestamp())


@dataclass(frozen=True, slots=True)
class UsageSnapshot:
    """What an entity used of a resource in one window.

    `millitokens` is exact; `consumed` is the same in whole tokens, rounded down. Releases and
    negative adjustments are taken off in the window in which they happen, so a window can be
    negative. `acquires` counts the writes that drew.
    """

    entity_id: str
    resource: str
    window: Window
    start: datetime
    millitokens: Mapping[str, Millitokens]
    acquires: int

    @property
    def end(self) -> datetime:
        """When the window was, or will be, over."""
        return window_end(self.window, self.start)

    @property
    def consumed(self) -> dict[str, int]:
        """Whole tokens by limit."""
        return {name: amount // 1000 for name, amount in self.millitokens.items()}


@dataclass(frozen=True, slots=True)
class UsagePage:
    """Some snapshots in order of time, and the cursor that continues; None at the end."""

    snapshots: tuple[UsageSnapshot, ...]
    cursor: str | None


@dataclass(frozen=True, slots=True)
class UsageSummary:
    """Many snapshots added up."""

    window: Window
    snapshots: int
    first: datetime | None
    last: datetime | None
    millitokens: Mapping[str, Millitokens]
    acquires: int

    @property
    def consumed(self) -> dict[str, int]:
        """Whole tokens by limit."""
        return {name: amount // 1000 for name, amount in self.millitokens.items()}

    @property
    def average(self) -> dict[str, float]:
        """Tokens by limit in one snapshot."""
        return {name: amount / 1000 / self.snapshots for name, amount in self.millitokens.items()}


def read_snapshot(item: Mapping[str, Any]) -> UsageSnapshot:
    """The snapshot that an item stores."""
    return UsageSnapshot(
        item["entity_id"]["S"],
        item["resource"]["S"],
        checked_window(item["window"]["S"]),
        datetime.fromisoformat(item["window_start"]["S"]),
        {
            name.removeprefix(COUNTER): Millitokens(int(value["N"]))
            for name, value in sorted(item.items())
            if name.startswith(COUNTER)
        },
        int(item["acquires"]["N"]) if "acquires" in item else 0,
    )


@dataclass(frozen=True, slots=True)
class _Wanted:
    """Which snapshots, checked: those whose window overlaps the time from `low` to `high`."""

    ns: NamespaceId
    entity_id: EntityId | None
    resource: Resource | None
    window: Window
    low: str
    high: str

    def ref(self, sort: str) -> SnapshotRef:
        """The snapshot that a sort key, of the table or of GSI2, names."""
        if self.entity_id is not None:
            _, _, resource, window, start = sort.split("#")
            who, what = self.entity_id, Resource(resource)
        else:
            assert self.resource is not None
            _, window, start, entity_id = sort.split("#")
            who, what = EntityId(entity_id), self.resource
        return SnapshotRef(self.ns, who, what, checked_window(window), start)

    def keeps(self, sort: str) -> bool:
        """Whether a sort key is one of these snapshots: an entity has other windows between."""
        ref = self.ref(sort)
        return ref.window == self.window and self.low <= ref.start <= self.high

    def query(self) -> dict[str, Any]:
        """The key condition. What it lets through beyond these snapshots, `keeps` refuses."""
        if self.entity_id is None:
            assert self.resource is not None
            condition, index = "GSI2PK = :p AND GSI2SK BETWEEN :a AND :b", {"IndexName": "GSI2"}
            prefix = f"USAGE#{self.window}#"
            # An entity follows the time.
            values = [pk_resource(self.ns, self.resource), prefix + self.low]
            values.append(f"{prefix}{self.high}{_AFTER_ALL}")
        else:
            condition, index = "PK = :p AND begins_with(SK, :a)", {}
            values = [pk_entity(self.ns, self.entity_id), USAGE]
            if self.resource is not None:
                condition = "PK = :p AND SK BETWEEN :a AND :b"
                prefix = f"{USAGE}{self.resource}#{self.window}#"
                values[1:] = [prefix + self.low, prefix + self.high]
        return {
            "KeyConditionExpression": condition,
            "ExpressionAttributeValues": {
                name: {"S": value} for name, value in zip((":p", ":a", ":b"), values, strict=False)
            },
            **index,
        }

    def start_after(self, cursor: str) -> Item:
        """The key to continue from: made anew, so that a cursor cannot lead anywhere else."""
        try:
            ref = self.ref(cursor)
            if not self.keeps(cursor) or self.resource not in {None, ref.resource}:
                raise ValueError(cursor)  # noqa: TRY301 - the same to the caller
        except (ValueError, AttributeError):
            raise ValidationError(f"cursor is not one that this query gave: {cursor!r}") from None
        return ref.key if self.entity_id is not None else {**ref.key, **ref.by_resource}


def get_usage_snapshots(
    core: Core,
    *,
    entity_id: str | None = None,
    resource: str | None = None,
    window: Window = "hourly",
    start: datetime | None = None,
    end: datetime | None = None,
    limit: int = 100,
    cursor: str | None = None,
) -> Flow[UsagePage]:
    """Snapshots of an entity, of a resource, or of both, whose window overlaps the time from
    `start` to before `end`. At most `limit` at once; the page's `cursor` continues.
    """
    wanted = yield from _wanted(core, entity_id, resource, window, start, end)
    whole("limit", limit, most=MAX_PAGE)
    return (yield from _page(core, wanted, limit, cursor))


def get_usage_summary(
    core: Core,
    *,
    entity_id: str | None = None,
    resource: str | None = None,
    window: Window = "hourly",
    start: datetime | None = None,
    end: datetime | None = None,
) -> Flow[UsageSummary]:
    """All such snapshots added up, page after page."""
    wanted = yield from _wanted(core, entity_id, resource, window, start, end)
    total: Counter[str] = Counter()
    count = acquires = 0
    first = last = None
    cursor: str | None = None
    while True:
        page = yield from _page(core, wanted, MAX_PAGE, cursor)
        for snapshot in page.snapshots:
            for name, amount in snapshot.millitokens.items():
                total[name] += amount
            acquires += snapshot.acquires
            first = min(first or snapshot.start, snapshot.start)
            last = max(last or snapshot.start, snapshot.start)
        count += len(page.snapshots)
        cursor = page.cursor
        if cursor is None:
            break
    sums = {name: Millitokens(amount) for name, amount in sorted(total.items())}
    return UsageSummary(wanted.window, count, first, last, sums, acquires)


def moment(what: str, value: object) -> datetime:
    """A time, checked. One without a zone could mean any hour."""
    if not isinstance(value, datetime) or value.tzinfo is None:
        raise ValidationError(f"{what} must be a datetime with a time zone: {value!r}")
    return value.astimezone(UTC)


def _wanted(
    core: Core,
    entity_id: str | None,
    resource: str | None,
    window: str,
    start: datetime | None,
    end: datetime | None,
) -> Flow[_Wanted]:
    who = None if entity_id is None else checked_entity(entity_id)
    what = None if resource is None else checked_resource(resource)
    if who is None and what is None:
        raise ValidationError("give entity_id, resource or both: usage is kept by entity")
    size = checked_window(window)
    low = "" if start is None else stamp(window_start(size, moment("start", start)))
    high = _AFTER_ALL
    if end is not None:
        high = stamp(moment("end", end) - timedelta(microseconds=1))
    ns = yield from opened(core)
    return _Wanted(ns, who, what, size, low, high)


def _page(core: Core, wanted: _Wanted, limit: int, cursor: str | None) -> Flow[UsagePage]:
    sort = "SK" if wanted.entity_id is not None else "GSI2SK"
    query = wanted.query()
    if cursor is not None:
        query["ExclusiveStartKey"] = wanted.start_after(cursor)
    items, more = yield from query_some(
        core, query, limit, lambda item: wanted.keeps(item[sort]["S"])
    )
    stored = items
    if wanted.entity_id is None:
        found = yield from batch_get(core, [key(i["PK"]["S"], i["SK"]["S"]) for i in items])
        # One that expired since the index listed it is not there.
        places = [(i["PK"]["S"], i["SK"]["S"]) for i in items]
        stored = [found[place] for place in places if place in found]
    return UsagePage(
        tuple(read_snapshot(item) for item in stored), items[-1][sort]["S"] if more else None
    )


def query_some(
    core: Core,
    query: Mapping[str, Any],
    limit: int,
    keep: Callable[[Item], bool] = lambda _: True,
) -> Flow[tuple[list[Item], bool]]:
    """Up to `limit` items of a query that are to be kept, and whether there are more."""
    params = {"TableName": core.table, **query, "Limit": limit + 1}
    kept: list[Item] = []
    while True:
        answer = yield from core.ask(Call("Query", dict(params)))
        kept += [item for item in answer.body.get("Items", ()) if keep(item)]
        if len(kept) > limit:
            return kept[:limit], True
        if not answer.body.get("LastEvaluatedKey"):
            return kept, False
        params["ExclusiveStartKey"] = answer.body["LastEvaluatedKey"]
