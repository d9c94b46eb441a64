"""Stream records as facts: which bucket's counters went from what to what, and when."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from headgate.bucket import WCU_COST, Milliseconds, Millitokens
from headgate.limit import MODES
from headgate.records import read_config
from headgate.schema import (
    CONFIG,
    STATE,
    BucketRef,
    NamespaceId,
    Resource,
    parse_bucket_pk,
    pk_system,
)

NO_ITEM = "*"  # before an item was made, and after it has gone


class BadRecord(ValueError):
    """A record that cannot be understood: says which, and what is wrong with it."""


@dataclass(frozen=True, slots=True)
class Image:
    """One shard of a bucket, as far as it counts.

    `link` stands for all totals at once: the record that follows another has, before it, the
    totals that the other left.
    """

    shards: int
    writes: int
    totals: Mapping[str, Millitokens]
    link: str


@dataclass(frozen=True, slots=True)
class BucketChange:
    """A write to one shard. Sequence numbers order the records of one item."""

    sequence: int
    at: Milliseconds
    ref: BucketRef
    shard: int
    before: Image | None
    after: Image | None

    @property
    def drawn(self) -> dict[str, Millitokens]:
        """What was drawn, by limit; negative what was given back.

        A limit that is new to the item starts at nothing. One that has gone, and an item that
        has gone, give nothing back: what they counted was drawn.
        """
        if self.after is None:
            return {}
        was = self.before.totals if self.before else {}
        drawn = {
            name: Millitokens(total - was.get(name, 0)) for name, total in self.after.totals.items()
        }
        return {name: amount for name, amount in drawn.items() if amount}

    @property
    def links(self) -> tuple[str, str]:
        """The totals before and after it."""
        return (
            self.before.link if self.before else NO_ITEM,
            self.after.link if self.after else NO_ITEM,
        )

    @property
    def counts(self) -> bool:
        """Whether a snapshot must know of it: it drew, or it changed totals all the same, as the
        removal of a limit does. The removal of the item is none of these: nothing links to it.
        """
        return bool(self.drawn) or (NO_ITEM not in self.links and len(set(self.links)) > 1)


@dataclass(frozen=True, slots=True)
class DefaultsChange:
    """The limits of a resource, or of the system, are others than before, or its mode is.
    `before` holds the fingerprints that those limits had, in whatever mode.
    """

    sequence: int
    at: Milliseconds
    ns: NamespaceId
    resource: Resource | None
    before: tuple[str, ...]
    mode: bool


@dataclass(frozen=True, slots=True)
class Irrelevant:
    """A record that nothing follows from."""

    sequence: int


Change = BucketChange | DefaultsChange | Irrelevant


def parse(record: Mapping[str, Any]) -> Change:
    """What a record, as Lambda delivers it, says."""
    try:
        body = record["dynamodb"]
        sequence = int(body["SequenceNumber"])
        at = Milliseconds(int(float(body["ApproximateCreationDateTime"]) * 1000))
        pk, sk = body["Keys"]["PK"]["S"], body["Keys"]["SK"]["S"]
        before, after = body.get("OldImage"), body.get("NewImage")
        if (before is None, after is None) != _ABSENT[record["eventName"]]:
            raise BadRecord(f"record {sequence} lacks an image: the stream must carry both")  # noqa: TRY301
        if sk == STATE:
            ref, shard = parse_bucket_pk(pk)
            return BucketChange(sequence, at, ref, shard, _image(before), _image(after))
        if sk == CONFIG:
            return _defaults(sequence, at, pk, before, after)
    except BadRecord:
        raise
    except (KeyError, ValueError, TypeError, AttributeError) as error:
        raise BadRecord(f"record {record.get('eventID')!r} is unreadable: {error!r}") from error
    raise BadRecord(f"record {sequence} is neither of a bucket nor of limits: {sk!r}")


# Whether the old and the new image are absent, by what happened.
_ABSENT = {"INSERT": (True, False), "MODIFY": (False, False), "REMOVE": (False, True)}


def _image(item: Mapping[str, Any] | None) -> Image | None:
    if item is None:
        return None
    totals = {
        name[2:-3]: Millitokens(int(value["N"]))
        for name, value in item.items()
        if name.startswith("b_") and name.endswith("_tc") and name != "b_wcu_tc"
    }
    return Image(
        int(item["shard_count"]["N"]), int(item["b_wcu_tc"]["N"]) // WCU_COST, totals, _link(totals)
    )


def _link(totals: Mapping[str, Millitokens]) -> str:
    counted = "|".join(f"{name}={total}" for name, total in sorted(totals.items()) if total)
    return hashlib.blake2b(counted.encode(), digest_size=6).hexdigest()


def _defaults(
    sequence: int,
    at: Milliseconds,
    pk: str,
    before: Mapping[str, Any] | None,
    after: Mapping[str, Any] | None,
) -> Change:
    were, are = read_config(before), read_config(after)
    old: tuple[str, ...] = ()
    if were.limits and were.limits != are.limits:
        old = tuple(were.limits.in_mode(mode).fingerprint for mode in MODES)
    switched = were.mode != are.mode
    if were.limits == are.limits and not switched:
        return Irrelevant(sequence)
    ns = NamespaceId(pk.partition("/")[0])
    if pk == pk_system(ns):
        return DefaultsChange(sequence, at, ns, None, old, switched)
    kind, resource = pk[len(ns) + 1 :].split("#")
    if kind != "RESOURCE":
        raise BadRecord(f"record {sequence} holds limits of neither a resource nor the system")
    return DefaultsChange(sequence, at, ns, Resource(resource), old, switched)
