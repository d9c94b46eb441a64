"""Plan and apply: make what is stored equal to what is written down, and touch nothing else.

    with Provisioner("limits") as limiter:
        limits = LimitsConfig(None, "gpt-4", (Limit.per_minute("rpm", 600),))
        store(limiter, limits, owner="stack-a")
        remove(limiter, address(limits), owner="stack-a")

What is stored at an address that is not `owned` was made by others: if it differs from what is
wanted there, the plan is refused before anything is changed.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias, cast

from headgate import ledger
from headgate.errors import HeadgateError, ValidationError
from headgate.limiter import SyncRateLimiter
from headgate.methods import sync
from headgate.records import Costs, Entity, LimitsConfig

if TYPE_CHECKING:
    from headgate.core import OnUnavailable
    from headgate.namespaces import Namespace


@dataclass(frozen=True, slots=True)
class OperationCosts:
    """What the operations of a resource take: stored with its limits, owned apart from them."""

    resource: str
    costs: Costs


Record: TypeAlias = Entity | LimitsConfig | OperationCosts


class Address(NamedTuple):
    """Where a record is stored: an entity, the limits of a level, or a resource's costs."""

    kind: Literal["entity", "limits", "costs"]
    entity_id: str | None
    resource: str | None = None

    @property
    def label(self) -> str:
        """What the ledger knows it by. No id contains `#`, so there is one reading."""
        return f"{self.kind}#{self.entity_id or ''}#{self.resource or ''}"

    def __str__(self) -> str:
        if self.kind == "entity":
            return f"entity {self.entity_id!r}"
        if self.kind == "costs":
            return f"the costs of resource {self.resource!r}"
        if self.entity_id is None:
            whose = "the system" if self.resource is None else f"resource {self.resource!r}"
        else:
            whose = f"entity {self.entity_id!r}"
            whose += "" if self.resource is None else f" on resource {self.resource!r}"
        return f"the limits of {whose}"


class Conflict(ValidationError):
    """Others have stored something else where this plan wants to."""

    def __init__(self, taken: Sequence[Address]) -> None:
        self.taken = tuple(taken)
        super().__init__(
            f"{', '.join(map(str, taken))}: stored already, with other values, and not by this. "
            "Delete it there or write it down as it is"
        )


class Action(Enum):
    """What a change does."""

    CREATE = "create"
    UPDATE = "update"
    DELETE = "delete"


@dataclass(frozen=True, slots=True)
class Change:
    """One record before and after: absent before a creation and after a deletion."""

    address: Address
    before: Record | None
    after: Record | None

    @property
    def action(self) -> Action:
        """Which kind of change it is."""
        if self.before is None:
            return Action.CREATE
        return Action.DELETE if self.after is None else Action.UPDATE

    def undone(self) -> Change:
        """The change that takes this one back."""
        return Change(self.address, self.after, self.before)


def address(record: Record) -> Address:
    """Where the record is stored."""
    if isinstance(record, Entity):
        return Address("entity", record.entity_id)
    if isinstance(record, OperationCosts):
        return Address("costs", None, record.resource)
    return Address("limits", record.entity_id, record.resource)


def plan(
    wanted: Iterable[Record],
    stored: Iterable[Record],
    *,
    owned: Collection[Address] = (),
) -> tuple[Change, ...]:
    """The changes, in an order in which they can be carried out.

    Creates what is missing, updates what is owned and differs, deletes what is owned and no
    longer wanted. Nothing is left to do where both agree, whoever stored it.
    """
    after = _by_address(wanted)
    before = _by_address(stored)
    taken = [
        place
        for place, record in after.items()
        if place in before and place not in owned and not _same(before[place], record)
    ]
    if taken:
        raise Conflict(taken)
    changes = [
        Change(place, before.get(place), record)
        for place, record in after.items()
        if place not in before or not _same(before[place], record)
    ]
    changes += [
        Change(place, record, None)
        for place, record in before.items()
        if place in owned and place not in after
    ]
    return tuple(sorted(changes, key=lambda change: _turn(change, {**before, **after})))


def current(limiter: SyncRateLimiter, places: Iterable[Address]) -> tuple[Record, ...]:
    """What is stored at these addresses."""
    found = [_stored(limiter, place) for place in places]
    return tuple(record for record in found if record is not None)


def _stored(limiter: SyncRateLimiter, place: Address) -> Record | None:
    if place.kind == "entity":
        return limiter.get_entity(place.entity_id or "")
    config = limiter.get_limits(entity_id=place.entity_id, resource=place.resource)
    if config is None:
        return None
    if place.kind == "costs":
        return OperationCosts(place.resource or "", config.costs) if config.costs else None
    # A level may have a mode or costs and no limits.
    return config if config.limits or config.on_unavailable else None


def apply(limiter: SyncRateLimiter, changes: Iterable[Change]) -> None:
    """Carries the changes out. If one fails, those before it are taken back."""
    done: list[Change] = []
    try:
        for change in changes:
            carry_out(limiter, change)
            done.append(change)
    except BaseException:
        for change in reversed(done):
            with contextlib.suppress(HeadgateError):
                carry_out(limiter, change.undone())
        raise


class Provisioner(SyncRateLimiter):
    """A limiter that also keeps the ledger of what was provisioned, and by whom."""

    claims = sync(ledger.claims)
    claim = sync(ledger.claim)
    disclaim = sync(ledger.disclaim)
    forget = sync(ledger.forget)
    claimed = sync(ledger.claimed)


def store(limiter: Provisioner, record: Record, owner: str) -> tuple[Change, ...]:
    """Makes the record what `owner` has written down. Conflict if others have it otherwise."""
    place = address(record)
    ours = owner in limiter.claims(place.label).owners
    changes = plan([record], current(limiter, [place]), owned=[place] if ours else ())
    apply(limiter, changes)
    limiter.claim(place.label, owner, made=bool(changes))
    return changes


def remove(limiter: Provisioner, place: Address, owner: str) -> tuple[Change, ...]:
    """Takes back what `owner` has stored, unless it was there before or others have it too."""
    changes: tuple[Change, ...] = ()
    if limiter.disclaim(place.label, owner):
        changes = plan([], current(limiter, [place]), owned=[place])
        apply(limiter, changes)
    limiter.forget(place.label)
    return changes


def store_namespace(limiter: Provisioner, name: str, owner: str) -> Namespace:
    """Registers a namespace for `owner`, or finds it."""
    found = limiter.get_namespace(name)
    namespace = found or limiter.register_namespace(name)
    limiter.claim(namespace_label(name), owner, made=found is None, registry=True)
    return namespace


def remove_namespace(limiter: Provisioner, name: str, owner: str) -> None:
    """Deletes a namespace that was registered for `owner`, with whom nobody else shares it."""
    label = namespace_label(name)
    if limiter.disclaim(label, owner, registry=True):
        limiter.delete_namespace(name)
    limiter.forget(label, registry=True)


def namespace_label(name: str) -> str:
    """What the ledger knows a namespace by."""
    return f"namespace#{name}"


def carry_out(limiter: SyncRateLimiter, change: Change) -> None:
    """Makes one change."""
    place, after = change.address, change.after
    if isinstance(after, LimitsConfig):
        limiter.set_limits(
            after.limits,
            entity_id=after.entity_id,
            resource=after.resource,
            on_unavailable=cast("OnUnavailable | None", after.on_unavailable),
        )
    elif isinstance(after, Entity):
        (limiter.create_entity if change.before is None else limiter.update_entity)(
            after.entity_id,
            parent_id=after.parent_id,
            cascade=after.cascade,
            name=after.name,
            metadata=after.metadata,
        )
    elif place.kind == "costs":
        costs = after.costs if isinstance(after, OperationCosts) else {}
        limiter.set_costs(costs, resource=place.resource or "")
    elif place.kind == "entity":
        limiter.delete_entity(place.entity_id or "")
    else:
        limiter.delete_limits(entity_id=place.entity_id, resource=place.resource)


def _by_address(records: Iterable[Record]) -> dict[Address, Record]:
    found: dict[Address, Record] = {}
    for record in records:
        place = address(record)
        if place in found:
            raise ValidationError(f"{place} is written down twice")
        found[place] = record
    return found


def _same(one: Record, other: Record) -> bool:
    return _plain(one) == _plain(other)


def _plain(record: Record) -> Record:
    """Without what storing adds, and in one order."""
    if isinstance(record, Entity):
        return replace(record, version=0, metadata=dict(record.metadata))
    if isinstance(record, OperationCosts):
        return record
    return replace(
        record,
        version=0,
        limits=tuple(sorted(record.limits, key=lambda limit: limit.name)),
        mode="normal",
        costs={},
    )


def _turn(change: Change, records: Mapping[Address, Record]) -> tuple[int, int, str]:
    """Entities before their limits and parents before children; deletions the other way."""
    place = change.address
    deletes = change.after is None
    limits = place.kind != "entity"
    depth = 0 if limits else _depth(place, records)
    stage = (2 if limits else 3) if deletes else (1 if limits else 0)
    return stage, -depth if deletes else depth, str(place)


def _depth(place: Address, records: Mapping[Address, Record]) -> int:
    seen = {place}
    while isinstance(record := records.get(place), Entity) and record.parent_id is not None:
        place = Address("entity", record.parent_id)
        if place in seen:
            raise ValidationError(f"{place} is its own ancestor")
        seen.add(place)
    return len(seen)
