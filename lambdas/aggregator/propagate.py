"""Changed defaults into buckets: of a resource, or of the system where no resource has its own.

Clients bring a bucket in line when they use it and their cache has expired. This reaches the
others, and the rest at once: those that have the limits that were in force before the change.
Whoever has others has them from elsewhere, from the entity or from the caller, and is left alone.
A changed mode, which disables or bypasses, is everyone's; the limits stay.

It goes through an index page by page, and after each page stores how far it got: out of time, the
record fails, is delivered again, and goes on from there. Should Lambda give up on the record, the
sweep goes on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Protocol, TypeVar

from aggregator.records import DefaultsChange
from aggregator.seen import sortable
from headgate.align import align
from headgate.core import Core, failure
from headgate.effects import Answer, Call, ConditionFailed, Conflicted, Flow, Item
from headgate.errors import HeadgateError, RateLimiterUnavailable
from headgate.limit import MODES
from headgate.reads import batch_get, query
from headgate.records import config_keys, read_config
from headgate.schema import (
    REGISTRY,
    BucketRef,
    NamespaceId,
    Resource,
    key,
    parse_bucket_pk,
    pk_resource,
    pk_system,
)
from headgate.usage import query_some

JOB = "#ALIGN#"
EVERYONE = "*"
_PAGE = 100
_TRIES = 5
_MOST_OLD = 30  # fingerprints: of ten changes in a row that did not get to the end
_KEPT = 2 * 86_400  # seconds: longer than the stream keeps a record that could come again
_NEXT = "$"  # the character after `#`: sorts after every shard of a bucket

T = TypeVar("T")


class Run(Protocol):
    """Runs flows to their end, one or many at once."""

    def __call__(self, flow: Flow[T]) -> T: ...

    def each(self, flows: Iterable[Flow[T]]) -> list[T]: ...


class Unfinished(HeadgateError):
    """Time is up. How far it got is stored."""


@dataclass(frozen=True, slots=True)
class Job:
    """A change on its way into buckets that have one of the `old` fingerprints, or, for its mode,
    into all. `after` is the part of the index that is done.
    """

    ns: NamespaceId
    resource: Resource | None
    sequence: int
    old: tuple[str, ...]
    after: str

    @property
    def key(self) -> Item:
        """Where it is kept: one partition for all namespaces, so that the sweep finds it."""
        return key(pk_system(REGISTRY), f"{JOB}{self.ns}#{self.resource or ''}")

    def next(self) -> dict[str, Any]:
        """The query for the buckets that are left."""
        if self.resource is not None:
            index, partition, end = "GSI2", pk_resource(self.ns, self.resource), f"BUCKET{_NEXT}"
        else:
            index, partition, end = "GSI4", str(self.ns), f"{self.ns}/BUCKET{_NEXT}"
        values = {":p": partition, ":a": self.after, ":b": end}
        return {
            "IndexName": index,
            "KeyConditionExpression": f"{index}PK = :p AND {index}SK BETWEEN :a AND :b",
            "ExpressionAttributeValues": {name: {"S": value} for name, value in values.items()},
        }

    def past(self, ref: BucketRef) -> Job:
        """The same once this bucket is done, all of its shards."""
        if self.resource is not None:
            return replace(self, after=f"BUCKET#{ref.entity_id}{_NEXT}")
        return replace(self, after=f"{self.ns}/BUCKET#{ref.entity_id}#{ref.resource}{_NEXT}")


def begin(core: Core, change: DefaultsChange) -> Flow[Job | None]:
    """The job for a change: new, or as far as it got. None if there is nothing to do: it is done,
    or a later change has taken its place, which goes for what this one left undone as well.
    """
    job = Job(change.ns, change.resource, change.sequence, (), _first(change))
    for _ in range(_TRIES):
        items = yield from batch_get(core, [job.key], strong=True)
        item = next(iter(items.values()), None)
        known = _sequence(item)
        left = _read(item)
        if known == change.sequence:
            return left
        if known > change.sequence:
            return None
        before = change.before
        if not before and not change.mode:
            before = yield from _next_level(core, change)
        undone = left.old if left else ()
        old = tuple(dict.fromkeys((*undone, *before)))[-_MOST_OLD:]
        if change.mode or EVERYONE in undone:
            old = tuple(dict.fromkeys((*old, EVERYONE)))
        if not old:
            return None
        job = replace(job, old=old)
        if (yield from _put(core, job, known)):
            return job
    raise RateLimiterUnavailable("the job of a changed default is contended")


def _first(change: DefaultsChange) -> str:
    return "BUCKET#" if change.resource is not None else f"{change.ns}/BUCKET#"


def _next_level(core: Core, change: DefaultsChange) -> Flow[tuple[str, ...]]:
    """What was in force before a resource had limits: the system's. What callers bring as their
    own default is not stored anywhere: they bring those buckets in line.
    """
    if change.resource is None:
        return ()
    place = config_keys(change.ns, None, None)
    items = yield from batch_get(core, [key(*place)], strong=True)
    limits = read_config(items.get(place)).limits
    return tuple(limits.in_mode(mode).fingerprint for mode in MODES) if limits else ()


def _put(core: Core, job: Job, known: int) -> Flow[bool]:
    """Stores a new job in the place of the one that was read. False if that has changed."""
    condition: dict[str, Any] = {"ConditionExpression": "attribute_not_exists(PK)"}
    if known:
        condition = {
            "ConditionExpression": "seq_no = :s",
            "ExpressionAttributeValues": {":s": {"S": sortable(known)}},
        }
    item = {
        **job.key,
        "seq_no": {"S": sortable(job.sequence)},
        "handled": {"S": job.after},
        "old": {"S": " ".join(job.old)},
    }
    (outcome,) = yield from core.call(
        Call("PutItem", {"TableName": core.table, "Item": item, **condition})
    )
    if isinstance(outcome, Answer | ConditionFailed | Conflicted):
        return isinstance(outcome, Answer)
    raise failure(outcome)


def unfinished(core: Core) -> Flow[list[Job]]:
    """Jobs that were begun and are not done."""
    items = yield from query(core, "PK = :p AND begins_with(SK, :s)", pk_system(REGISTRY), JOB)
    return [job for item in items if (job := _read(item)) is not None]


def carry_out(run: Run, core: Core, job: Job, time_left: Callable[[], bool]) -> int:
    """Brings the buckets that are left in line, and says how many. Raises Unfinished."""
    aligned = 0
    while True:
        behind, more, last = run(_page(core, job))
        run.each(align(core, ref, mode_only=mode_only) for ref, mode_only in behind.items())
        aligned += len(behind)
        if not more or last is None:
            run(_store(core, job, finished=True))
            return aligned
        job = job.past(last)
        if not run(_store(core, job)):
            return aligned  # a later change goes on
        if not time_left():
            raise Unfinished(f"changed limits have reached {aligned} more buckets, not yet all")


def _page(core: Core, job: Job) -> Flow[tuple[dict[BucketRef, bool], bool, BucketRef | None]]:
    """The buckets of a page that are behind, by their mode only or not; whether there are more;
    and the page's last.
    """
    keys, more = yield from query_some(core, job.next(), _PAGE)
    items = yield from batch_get(core, [{"PK": k["PK"], "SK": k["SK"]} for k in keys])
    behind: dict[BucketRef, bool] = {}
    for (pk, _), item in sorted(items.items()):
        ref, follows = parse_bucket_pk(pk)[0], item["lv"]["S"] in job.old
        if follows or EVERYONE in job.old:
            behind[ref] = behind.get(ref, True) and not follows
    return behind, more, parse_bucket_pk(keys[-1]["PK"]["S"])[0] if keys else None


def _store(core: Core, job: Job, *, finished: bool = False) -> Flow[bool]:
    """How far it got. False if a later change has taken its place."""
    update = "SET handled = :a"
    values: dict[str, Any] = {":a": {"S": job.after}, ":s": {"S": sortable(job.sequence)}}
    names = {}
    if finished:
        update += ", finished = :f, #ttl = :t"
        expires = core.now() // 1000 + _KEPT
        values |= {":f": {"BOOL": True}, ":t": {"N": str(expires)}}
        names = {"ExpressionAttributeNames": {"#ttl": "ttl"}}
    (outcome,) = yield from core.call(
        Call(
            "UpdateItem",
            {
                "TableName": core.table,
                "Key": job.key,
                "UpdateExpression": update,
                "ConditionExpression": "seq_no = :s",
                "ExpressionAttributeValues": values,
                **names,
            },
        )
    )
    if isinstance(outcome, Answer | ConditionFailed):
        return isinstance(outcome, Answer)
    raise failure(outcome)


def _sequence(item: Mapping[str, Any] | None) -> int:
    return int(item["seq_no"]["S"][2:]) if item else 0


def _read(item: Mapping[str, Any] | None) -> Job | None:
    """The job that an item stores, unless it is done."""
    if item is None or "finished" in item:
        return None
    _, _, ns, resource = item["SK"]["S"].split("#")
    return Job(
        NamespaceId(ns),
        Resource(resource) if resource else None,
        _sequence(item),
        tuple(item["old"]["S"].split()),
        item["handled"]["S"],
    )
