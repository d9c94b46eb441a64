"""Plan and apply: make what is stored equal to what is written down, and touch nothing else.

    wanted = [LimitsConfig(None, "gpt-4", (Limit.per_minute("rpm", 600),))]
    changes = plan(wanted, current(limiter, addresses(wanted)))
    apply(limiter, changes)

What is stored at an address that is not `owned` was made by others: if it differs from what is
wanted there, the plan is refused before anything is changed.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol, TypeAlias, cast

from headgate.errors import HeadgateError, ValidationError
from headgate.records import Entity, LimitsConfig

if TYPE_CHECKING:
    from headgate.core import OnUnavailable
    from headgate.limiter import SyncRateLimiter

Record: TypeAlias = Entity | LimitsConfig


class Registered(Protocol):
    """A namespace as the registry knows it."""

    @property
    def id(self) -> str: ...


class Registry(Protocol):
    """What a limiter offers to provision namespaces."""

    def get_namespace(self, name: str) -> Registered | None: ...
    def register_namespace(self, name: str) -> Registered: ...
    def delete_namespace(self, name: str) -> object: ...


class Address(NamedTuple):
    """Where a record is stored: an entity, or the limits of a level."""

    kind: Literal["entity", "limits"]
    entity_id: str | None
    resource: str | None = None

    def __str__(self) -> str:
        if self.kind == "entity":
            return f"entity {self.entity_id!r}"
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
    found: list[Record | None] = [
        limiter.get_entity(place.entity_id or "")
        if place.kind == "entity"
        else limiter.get_limits(entity_id=place.entity_id, resource=place.resource)
        for place in places
    ]
    return tuple(record for record in found if record is not None)


def apply(limiter: SyncRateLimiter, changes: Iterable[Change]) -> None:
    """Carries the changes out. If one fails, those before it are taken back."""
    done: list[Change] = []
    try:
        for change in changes:
            _carry_out(limiter, change)
            done.append(change)
    except BaseException:
        for change in reversed(done):
            with contextlib.suppress(HeadgateError):
                _carry_out(limiter, change.undone())
        raise


def _carry_out(limiter: SyncRateLimiter, change: Change) -> None:
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
    return replace(
        record, version=0, limits=tuple(sorted(record.limits, key=lambda limit: limit.name))
    )


def _turn(change: Change, records: Mapping[Address, Record]) -> tuple[int, int, str]:
    """Entities before their limits and parents before children; deletions the other way."""
    place = change.address
    deletes = change.after is None
    limits = place.kind == "limits"
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
