"""Names: of the table, its keys and attributes. Items become dataclasses here, once.

| record          | PK                                      | SK                     |
|-----------------|-----------------------------------------|------------------------|
| bucket          | {ns}/BUCKET#{id}#{resource}#{shard}     | #STATE                 |
| entity          | {ns}/ENTITY#{id}                        | #META                  |
| entity config   | {ns}/ENTITY#{id}                        | #CONFIG#{resource}     |
| resource config | {ns}/RESOURCE#{resource}                | #CONFIG                |
| system config   | {ns}/SYSTEM#                            | #CONFIG                |
| namespace       | _/SYSTEM#                               | #NAMESPACE#{name}, #NSID#{id} |
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, NewType

from headgate.bucket import (
    BASELINE,
    WCU,
    WCU_COST,
    WHOLE,
    Balance,
    Milliseconds,
    Millitokens,
    Shard,
    calculate_available,
    ceiling,
    force_consume,
)
from headgate.effects import Item
from headgate.errors import ValidationError
from headgate.limit import Limit, LimitSet, checked_mode

NamespaceId = NewType("NamespaceId", str)
EntityId = NewType("EntityId", str)
Resource = NewType("Resource", str)

DEFAULT = Resource("_default_")  # an entity's limits for every resource that has none of its own
REGISTRY = NamespaceId("_")
STATE = "#STATE"
CONFIG = "#CONFIG"
META = "#META"

# `#` separates the parts of a key and `/` ends the namespace (whose ids cannot contain it).
# Everything else that UUIDs, emails, IPs, ARNs and paths are made of is allowed.
_ID = re.compile(r"[^#\x00-\x1f\x7f-\x9f]+")
_NAMESPACE_ID = re.compile(r"[A-Za-z0-9_-]{11}")
_NAMESPACE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
MAX_ENTITY_BYTES = 256
MAX_RESOURCE_BYTES = 128


def _valid_id(what: str, value: object, most: int) -> str:
    if (
        not isinstance(value, str)
        or not _ID.fullmatch(value)
        or value != value.strip()
        or len(value.encode(errors="replace")) > most
        or any(0xD800 <= ord(c) <= 0xDFFF for c in value)
    ):
        raise ValidationError(
            f"{what} must be 1 to {most} bytes of text without '#', control characters or "
            f"space at its ends: {value!r}"
        )
    return value


def checked_entity(value: object) -> EntityId:
    """The entity id, checked."""
    return EntityId(_valid_id("entity_id", value, MAX_ENTITY_BYTES))


def checked_resource(value: object) -> Resource:
    """The resource's name, checked. `_default_` is taken."""
    if value == DEFAULT:
        raise ValidationError(f"the resource name {DEFAULT!r} is reserved")
    return Resource(_valid_id("resource", value, MAX_RESOURCE_BYTES))


def checked_key(value: object) -> str:
    """An idempotency key, checked."""
    return _valid_id("idempotency_key", value, MAX_RESOURCE_BYTES)


def namespace_id(value: object) -> NamespaceId:
    """A namespace's opaque id, checked."""
    if not isinstance(value, str) or not _NAMESPACE_ID.fullmatch(value):
        raise ValidationError(f"a namespace id has 11 letters, digits, - or _: {value!r}")
    return NamespaceId(value)


def namespace_name(value: object) -> str:
    """A namespace's name, checked."""
    if not isinstance(value, str) or not _NAMESPACE.fullmatch(value):
        raise ValidationError(
            f"a namespace is a letter or digit, then up to 63 of these or . _ -: {value!r}"
        )
    return value


def pk_entity(ns: NamespaceId, entity_id: str) -> str:
    return f"{ns}/ENTITY#{entity_id}"


def pk_resource(ns: NamespaceId, name: str) -> str:
    return f"{ns}/RESOURCE#{name}"


def pk_system(ns: NamespaceId) -> str:
    return f"{ns}/SYSTEM#"


def sk_config(name: str) -> str:
    return f"{CONFIG}#{name}"


def gsi3_pk_entity_config(ns: NamespaceId, name: str) -> str:
    return f"{ns}/ENTITY_CONFIG#{name}"


def key(pk: str, sk: str) -> Item:
    """A primary key as DynamoDB's JSON has it."""
    return {"PK": {"S": pk}, "SK": {"S": sk}}


def in_namespace(ns: NamespaceId, pk: str) -> Item:
    """The index keys that every item carries: GSI4 lists a namespace."""
    return {"GSI4PK": {"S": ns}, "GSI4SK": {"S": pk}}


class BucketRef(NamedTuple):
    """Which bucket: all shards of one entity and resource in one namespace."""

    ns: NamespaceId
    entity_id: EntityId
    resource: Resource

    def pk(self, shard: int) -> str:
        return f"{self.ns}/BUCKET#{self.entity_id}#{self.resource}#{shard}"

    def key(self, shard: int) -> Item:
        return key(self.pk(shard), STATE)

    def identity(self, shard: int) -> Item:
        """Keys, index keys and the plain attributes that never change."""
        pk = self.pk(shard)
        return {
            **key(pk, STATE),
            "entity_id": {"S": self.entity_id},
            "resource": {"S": self.resource},
            "GSI2PK": {"S": pk_resource(self.ns, self.resource)},
            "GSI2SK": {"S": f"BUCKET#{self.entity_id}#{shard}"},
            "GSI3PK": {"S": pk_entity(self.ns, self.entity_id)},
            "GSI3SK": {"S": f"BUCKET#{self.resource}#{shard}"},
            **in_namespace(self.ns, pk),
        }


def parse_bucket_pk(pk: str) -> tuple[BucketRef, int]:
    """The bucket and shard that a key names. No id contains `#`, so there is one reading."""
    ns, _, rest = pk.partition("/")
    kind, entity_id, name, shard = rest.split("#")
    if kind != "BUCKET":
        raise ValueError(f"not a bucket's key: {pk!r}")
    return BucketRef(NamespaceId(ns), EntityId(entity_id), Resource(name)), int(shard)


@dataclass(frozen=True, slots=True)
class Bucket:
    """One shard of a bucket as an answer showed it: balances in the order of its limits."""

    shard: Shard
    limits: LimitSet
    tk: tuple[Millitokens, ...]
    tc: tuple[Millitokens, ...]
    wcu_tk: Millitokens
    wcu_tc: Millitokens
    cascade: bool = False
    parent_id: EntityId | None = None

    @classmethod
    def full(
        cls,
        limits: LimitSet,
        now: Milliseconds,
        *,
        shard: Shard = WHOLE,
        cascade: bool = False,
        parent_id: EntityId | None = None,
    ) -> Bucket:
        """A bucket that nothing was drawn from."""
        nothing = Millitokens(0)
        return cls(
            shard,
            limits,
            tuple(ceiling(rate, shard, now) for rate in limits.rates),
            (nothing,) * len(limits.rates),
            ceiling(WCU, WHOLE, now),
            nothing,
            cascade,
            parent_id,
        )

    @classmethod
    def unseen(cls, limits: LimitSet, now: Milliseconds) -> Bucket:
        """What a client expects of a bucket it has not seen: idle, so over its cap."""
        full = cls.full(limits, now)
        over = tuple(
            Millitokens(tk + rate.cp) for tk, rate in zip(full.tk, limits.rates, strict=True)
        )
        return replace(full, tk=over)

    def drawn(self, amounts: Sequence[Millitokens], now: Milliseconds) -> Bucket:
        """The bucket after a write that drew these amounts."""
        after = [
            force_consume(self.balance(i), amount, now) if amount else self.balance(i)
            for i, amount in enumerate(amounts)
        ]
        return replace(
            self,
            tk=tuple(balance.tk for balance in after),
            tc=tuple(balance.tc for balance in after),
            wcu_tk=Millitokens(self.wcu_tk - WCU_COST),
            wcu_tc=Millitokens(self.wcu_tc + WCU_COST),
        )

    def balance(self, position: int) -> Balance:
        """One limit, for the arithmetic."""
        return Balance(
            self.limits.rates[position], self.tk[position], self.tc[position], self.shard
        )

    def available(self, now: Milliseconds) -> tuple[Millitokens, ...]:
        """What can be drawn of each limit."""
        return tuple(
            calculate_available(self.balance(position), now) for position in range(len(self.tk))
        )


class Decoder:
    """Items to buckets. Sets of limits are shared: a fingerprint names its set for good."""

    def __init__(self, most: int = 10_000) -> None:
        self._sets: dict[str, LimitSet] = {}
        self._most = most

    def intern(self, limits: LimitSet) -> LimitSet:
        """The one instance that stands for these limits."""
        if len(self._sets) >= self._most:
            self._sets.clear()
        return self._sets.setdefault(limits.fingerprint, limits)

    def bucket(self, item: Mapping[str, Any]) -> Bucket:
        """The bucket that this item holds."""
        limits = self._sets.get(item["lv"]["S"]) or self.intern(_bucket_limits(item))
        parent = item.get("parent_id")
        return Bucket(
            _shard(item),
            limits,
            tuple(Millitokens(int(item[f"b_{name}_tk"]["N"])) for name in limits.names),
            tuple(Millitokens(int(item[f"b_{name}_tc"]["N"])) for name in limits.names),
            Millitokens(int(item["b_wcu_tk"]["N"])),
            Millitokens(int(item["b_wcu_tc"]["N"])),
            "cascade" in item and bool(item["cascade"]["BOOL"]),
            EntityId(parent["S"]) if parent else None,
        )


def _shard(item: Mapping[str, Any]) -> Shard:
    count = int(item["shard_count"]["N"])
    # Most buckets are whole, and share the one that says so.
    return WHOLE if count == 1 else Shard(int(item["PK"]["S"].rpartition("#")[2]), count)


def _bucket_limits(item: Mapping[str, Any]) -> LimitSet:
    names = [name[2:-3] for name in item if name.startswith("b_") and name.endswith("_cp")]
    limits = [
        Limit(
            name,
            int(item[f"b_{name}_cp"]["N"]) // 1000,
            int(item[f"b_{name}_ra"]["N"]) // 1000,
            int(item[f"b_{name}_rp"]["N"]) // 1000,
        )
        for name in names
    ]
    return LimitSet(limits, checked_mode(item["mode"]["S"]) if "mode" in item else "normal")


def limit_attributes(limits: LimitSet) -> Item:
    """The capacities, rates, mode and fingerprint as a bucket stores them."""
    item: Item = {"lv": {"S": limits.fingerprint}}
    if limits.mode != "normal":
        item["mode"] = {"S": limits.mode}
    for name, rate in zip(limits.names, limits.rates, strict=True):
        for suffix, value in zip(("cp", "ra", "rp"), rate, strict=True):
            item[f"b_{name}_{suffix}"] = {"N": str(value)}
    return item


def bucket_item(ref: BucketRef, bucket: Bucket, ttl: int | None) -> Item:
    """The item that holds this bucket."""
    item = {
        **ref.identity(bucket.shard.i),
        **limit_attributes(bucket.limits),
        "shard_count": {"N": str(bucket.shard.n)},
        "rf": {"N": str(BASELINE)},
        "b_wcu_tk": {"N": str(bucket.wcu_tk)},
        "b_wcu_tc": {"N": str(bucket.wcu_tc)},
    }
    for name, tk, tc in zip(bucket.limits.names, bucket.tk, bucket.tc, strict=True):
        item[f"b_{name}_tk"] = {"N": str(tk)}
        item[f"b_{name}_tc"] = {"N": str(tc)}
    if bucket.cascade:
        item["cascade"] = {"BOOL": True}
    if bucket.parent_id is not None:
        item["parent_id"] = {"S": bucket.parent_id}
    if ttl is not None:
        item["ttl"] = {"N": str(ttl)}
    return item


def table_definition(name: str) -> dict[str, Any]:
    """CreateTable's parameters: what the construct deploys, for engines without CloudFormation."""
    keys = ["PK", "SK", *(f"GSI{i}{k}" for i in range(1, 5) for k in ("PK", "SK"))]
    return {
        "TableName": name,
        "BillingMode": "PAY_PER_REQUEST",
        "AttributeDefinitions": [{"AttributeName": k, "AttributeType": "S"} for k in keys],
        "KeySchema": _key_schema("PK", "SK"),
        "GlobalSecondaryIndexes": [
            {
                "IndexName": f"GSI{i}",
                "KeySchema": _key_schema(f"GSI{i}PK", f"GSI{i}SK"),
                "Projection": {"ProjectionType": "ALL" if i == 1 else "KEYS_ONLY"},
            }
            for i in range(1, 5)
        ],
        "StreamSpecification": {"StreamEnabled": True, "StreamViewType": "NEW_AND_OLD_IMAGES"},
    }


def _key_schema(partition: str, sort: str) -> list[dict[str, str]]:
    return [
        {"AttributeName": partition, "KeyType": "HASH"},
        {"AttributeName": sort, "KeyType": "RANGE"},
    ]
