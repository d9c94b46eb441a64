"""Changed defaults into buckets: of a resource, or of the system where no resource has its own.

Clients bring a bucket in line when they use it and their cache has expired. This reaches the
others, and the rest at once. It goes through an index page by page, and after each page stores
how far it got: out of time, the record fails, is delivered again, and goes on from there. Should
Lambda give up on the record, the sweep goes on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol, TypeVar

from aggregator.records import DefaultsChange
from aggregator.seen import sortable
from headgate.align import align
from headgate.core import Core, failure
from headgate.effects import Answer, Call, ConditionFailed, Flow, Item
from headgate.errors import HeadgateError, LimitsNotFound
from headgate.limit import LimitSet
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
_PAGE = 100
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
    """A change on its way into buckets. `after` is the part of the index that is done."""

    ns: NamespaceId
    resource: Resource | None
    sequence: int
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
    """The job for a change: new, or as far as it got. None if it is done, or a later change has
    taken its place: limits are resolved anew for each bucket, so the last one is enough.
    """
    start = "BUCKET#" if change.resource is not None else f"{change.ns}/BUCKET#"
    job = Job(change.ns, change.resource, change.sequence, start)
    (outcome,) = yield from core.call(
        Call(
            "UpdateItem",
            {
                "TableName": core.table,
                "Key": job.key,
                "UpdateExpression": "SET seq_no = :s, handled = :a REMOVE finished, #ttl",
                "ConditionExpression": "attribute_not_exists(PK) OR seq_no < :s",
                "ExpressionAttributeNames": {"#ttl": "ttl"},
                "ExpressionAttributeValues": {
                    ":s": {"S": sortable(job.sequence)},
                    ":a": {"S": job.after},
                },
                "ReturnValuesOnConditionCheckFailure": "ALL_OLD",
            },
        )
    )
    match outcome:
        case Answer():
            return job
        case ConditionFailed(item) if item is not None:
            known = _read(item)
            return known if known is not None and known.sequence == job.sequence else None
        case _:
            raise failure(outcome)


def unfinished(core: Core) -> Flow[list[Job]]:
    """Jobs that were begun and are not done."""
    items = yield from query(core, "PK = :p AND begins_with(SK, :s)", pk_system(REGISTRY), JOB)
    return [job for item in items if (job := _read(item)) is not None]


def carry_out(run: Run, core: Core, job: Job, time_left: Callable[[], bool]) -> int:
    """Brings the buckets that are left in line, and says how many were not. Raises Unfinished."""
    aligned = 0
    while True:
        refs, more = run(_page(core, job))
        behind = run(_behind(core, job, refs))
        run.each(_align(core, ref) for ref in behind)
        aligned += len(behind)
        if not more:
            run(_store(core, job, finished=True))
            return aligned
        job = job.past(refs[-1])
        if not run(_store(core, job)):
            return aligned  # a later change goes through all buckets anyway
        if not time_left():
            raise Unfinished(f"changed limits have reached {aligned} more buckets, not yet all")


def _page(core: Core, job: Job) -> Flow[tuple[list[BucketRef], bool]]:
    items, more = yield from query_some(core, job.next(), _PAGE)
    refs = [parse_bucket_pk(item["PK"]["S"])[0] for item in items]
    return list(dict.fromkeys(refs)), more


def _behind(core: Core, job: Job, refs: Sequence[BucketRef]) -> Flow[list[BucketRef]]:
    """Those that do not have the new limits already, or whose resource has its own."""
    if not refs:
        return []
    place = config_keys(job.ns, None, job.resource)
    own = {ref.resource: config_keys(ref.ns, None, ref.resource) for ref in refs}
    stored = yield from batch_get(
        core, [key(*place), *(key(*at) for at in own.values())], strong=True
    )
    wanted = read_config(stored.get(place)).limits
    if job.resource is None:
        refs = [ref for ref in refs if read_config(stored.get(own[ref.resource])).limits is None]
    items = yield from batch_get(core, [ref.key(0) for ref in refs], strong=True)
    return [ref for ref in refs if _differs(core, items.get((ref.pk(0), "#STATE")), wanted)]


def _differs(core: Core, item: Item | None, wanted: LimitSet | None) -> bool:
    if item is None:
        return False
    bucket = core.decoder.bucket(item)
    # The other shards are not read here: which limits they have, aligning will see.
    return bucket.shard.n > 1 or bucket.limits != wanted


def _align(core: Core, ref: BucketRef) -> Flow[None]:
    try:
        yield from align(core, ref)
    except LimitsNotFound:
        # No level has limits: the callers of this bucket bring their own.
        return


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


def _read(item: Mapping[str, Any]) -> Job | None:
    """The job that an item stores, unless it is done."""
    if "finished" in item:
        return None
    _, _, ns, resource = item["SK"]["S"].split("#")
    return Job(
        NamespaceId(ns),
        Resource(resource) if resource else None,
        int(item["seq_no"]["S"][2:]),
        item["handled"]["S"],
    )
