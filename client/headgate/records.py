"""Items other than buckets: which limits a level sets, and what an entity is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from headgate.effects import Item
from headgate.limit import Limit, LimitSet, Mode, checked_mode
from headgate.schema import (
    CONFIG,
    DEFAULT,
    META,
    EntityId,
    NamespaceId,
    Resource,
    gsi3_pk_entity_config,
    in_namespace,
    key,
    pk_entity,
    pk_resource,
    pk_system,
    sk_config,
)

Place: TypeAlias = tuple[str, str]
"""A partition and a sort key."""

Costs: TypeAlias = Mapping[str, Mapping[str, int]]
"""What each operation takes of which limit: `{"export": {"rpm": 1, "units": 100}}`."""

Level = Literal["entity", "entity_default", "resource", "system", "constructor", "call"]


@dataclass(frozen=True, slots=True)
class ConfigRecord:
    """One level's item as the cache holds it. Without limits: the level sets none."""

    limits: LimitSet | None = None
    on_unavailable: str | None = None
    version: int = 0
    mode: Mode = "normal"
    costs: Costs = field(default_factory=dict)

    @property
    def empty(self) -> bool:
        """Whether there is nothing to store."""
        return not (self.limits or self.on_unavailable or self.mode != "normal" or self.costs)


@dataclass(frozen=True, slots=True)
class LimitsConfig:
    """What is stored at one level: system (no ids), resource, entity, or entity and resource.

    Without `limits`, the level has only a mode or costs, and the next one's limits apply.
    """

    entity_id: str | None
    resource: str | None
    limits: tuple[Limit, ...]
    on_unavailable: str | None = None
    version: int = 1
    mode: Mode = "normal"
    costs: Costs = field(default_factory=dict)

    @property
    def level(self) -> Level:
        """Which level this is."""
        if self.entity_id is not None:
            return "entity_default" if self.resource is None else "entity"
        return "system" if self.resource is None else "resource"


@dataclass(frozen=True, slots=True)
class ResolvedLimits:
    """The limits in force for an entity and resource, and the level that answered."""

    limits: tuple[Limit, ...]
    level: Level
    on_unavailable: str
    mode: Mode = "normal"


def config_keys(ns: NamespaceId, entity_id: EntityId | None, resource: Resource | None) -> Place:
    """Where a level's configuration is stored."""
    if entity_id is not None:
        return pk_entity(ns, entity_id), sk_config(resource or DEFAULT)
    return (pk_system(ns) if resource is None else pk_resource(ns, resource)), CONFIG


def resolution_keys(
    ns: NamespaceId, entity_id: EntityId, resource: Resource
) -> tuple[tuple[Place, Level], ...]:
    """The levels that can answer, the strongest first."""
    return (
        (config_keys(ns, entity_id, resource), "entity"),
        (config_keys(ns, entity_id, None), "entity_default"),
        (config_keys(ns, None, resource), "resource"),
        (config_keys(ns, None, None), "system"),
    )


def config_item(
    ns: NamespaceId,
    entity_id: EntityId | None,
    resource: Resource | None,
    record: ConfigRecord,
) -> Item:
    """The item that stores a level's limits: whole tokens and seconds, as users state them."""
    pk, sk = config_keys(ns, entity_id, resource)
    item: Item = {
        **key(pk, sk),
        **in_namespace(ns, pk),
        "config_version": {"N": str(record.version)},
    }
    if entity_id is not None:
        item["entity_id"] = {"S": entity_id}
        item["GSI3PK"] = {"S": gsi3_pk_entity_config(ns, resource or DEFAULT)}
        item["GSI3SK"] = {"S": entity_id}
    if resource is not None:
        item["resource"] = {"S": resource}
    if record.on_unavailable is not None:
        item["on_unavailable"] = {"S": record.on_unavailable}
    if record.mode != "normal":
        item["mode"] = {"S": record.mode}
    if record.costs:
        item["costs"] = {
            "M": {
                operation: {"M": {name: {"N": str(amount)} for name, amount in taken.items()}}
                for operation, taken in record.costs.items()
            }
        }
    for limit in record.limits.limits if record.limits else ():
        item[f"l_{limit.name}_cp"] = {"N": str(limit.capacity)}
        item[f"l_{limit.name}_ra"] = {"N": str(limit.refill_amount)}
        item[f"l_{limit.name}_rp"] = {"N": str(limit.refill_period)}
    return item


def read_config(item: Mapping[str, Any] | None) -> ConfigRecord:
    """The record that an item stores; no item stores none."""
    if not item:
        return ConfigRecord()
    names = [name[2:-3] for name in item if name.startswith("l_") and name.endswith("_cp")]
    limits = [
        Limit(name, *(int(item[f"l_{name}_{part}"]["N"]) for part in ("cp", "ra", "rp")))
        for name in names
    ]
    return ConfigRecord(
        LimitSet(limits) if limits else None,
        item["on_unavailable"]["S"] if "on_unavailable" in item else None,
        int(item["config_version"]["N"]),
        checked_mode(item["mode"]["S"]) if "mode" in item else "normal",
        {
            operation: {name: int(amount["N"]) for name, amount in taken["M"].items()}
            for operation, taken in (item["costs"]["M"] if "costs" in item else {}).items()
        },
    )


def read_limits_config(item: Mapping[str, Any]) -> LimitsConfig:
    """The same for people: with the ids that the item carries."""
    record = read_config(item)
    return LimitsConfig(
        item["entity_id"]["S"] if "entity_id" in item else None,
        item["resource"]["S"] if "resource" in item else None,
        record.limits.limits if record.limits else (),
        record.on_unavailable,
        record.version,
        record.mode,
        record.costs,
    )


@dataclass(frozen=True, slots=True)
class Entity:
    """Whoever is limited. Needed only for a parent, a cascade or metadata.

    With `cascade`, every acquire of this entity is drawn from its parent as well.
    """

    entity_id: str
    parent_id: str | None = None
    cascade: bool = False
    name: str | None = None
    metadata: Mapping[str, str] = field(default_factory=dict)
    version: int = 1


def entity_item(ns: NamespaceId, entity: Entity) -> Item:
    """The item that stores an entity."""
    pk = pk_entity(ns, entity.entity_id)
    item: Item = {
        **key(pk, META),
        **in_namespace(ns, pk),
        "entity_id": {"S": entity.entity_id},
        "cascade": {"BOOL": entity.cascade},
        "metadata": {"M": {name: {"S": value} for name, value in entity.metadata.items()}},
        "version": {"N": str(entity.version)},
    }
    if entity.name is not None:
        item["name"] = {"S": entity.name}
    if entity.parent_id is not None:
        item["parent_id"] = {"S": entity.parent_id}
        item["GSI1PK"] = {"S": f"{ns}/PARENT#{entity.parent_id}"}
        item["GSI1SK"] = {"S": f"CHILD#{entity.entity_id}"}
    return item


def read_entity(item: Mapping[str, Any]) -> Entity:
    """The entity that an item stores."""
    return Entity(
        item["entity_id"]["S"],
        item["parent_id"]["S"] if "parent_id" in item else None,
        item["cascade"]["BOOL"],
        item["name"]["S"] if "name" in item else None,
        {name: value["S"] for name, value in item["metadata"]["M"].items()},
        int(item["version"]["N"]),
    )
