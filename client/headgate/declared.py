"""Limits as code over several namespaces: everything is planned before anything is changed.

Who has a record written down is in the ledger, as for records that are deployed with a stack. So
what a file owns is what it stored; what others stored is left alone, and a file that contradicts
it is refused.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from headgate.errors import HeadgateError, ValidationError
from headgate.ledger import Claims
from headgate.namespaces import DEFAULT_NAME
from headgate.provision import (
    Action,
    Address,
    Change,
    Provisioner,
    Record,
    address,
    carry_out,
    current,
    namespace_label,
    plan,
    remove_namespace,
    store_namespace,
)
from headgate.records import Entity

Wanted = Mapping[str, Sequence[Record]]
"""The records of each namespace."""


@dataclass(frozen=True, slots=True)
class Planned:
    """What is to be done in one namespace, and to it: `action` creates or deletes it."""

    namespace: str
    action: Action | None
    changes: tuple[Change, ...] = ()
    claims: tuple[Address, ...] = ()
    released: tuple[Address, ...] = ()


@dataclass(frozen=True, slots=True)
class Plan:
    """All that is to be done for one owner, and nothing that is not."""

    owner: str
    parts: tuple[Planned, ...] = field(default=())

    @property
    def changes(self) -> list[tuple[str, Change]]:
        """Every change, with its namespace."""
        return [(part.namespace, change) for part in self.parts for change in part.changes]

    @property
    def empty(self) -> bool:
        """Whether all is as it is written down."""
        return not self.changes and not any(part.action for part in self.parts)


def plan_all(limiter: Provisioner, wanted: Wanted, owner: str) -> Plan:
    """What it takes to make the stored records what they are written down as. ValidationError if
    that cannot be: others have stored something else, or a parent is missing.
    """
    existing = {namespace.name for namespace in limiter.list_namespaces()}
    parts = [
        _part(limiter, name, records, owner, exists=name in existing)
        for name, records in wanted.items()
    ]
    registered = limiter.claimed(owner, registry=True)
    for label, claims in registered.items():
        name = label.removeprefix(namespace_label(""))
        if name in wanted or name not in existing:
            continue
        if claims.made and claims.owners == {owner} and name != DEFAULT_NAME:
            parts.append(Planned(name, Action.DELETE))
        else:
            parts.append(_part(limiter, name, (), owner, exists=True))
    return Plan(owner, tuple(parts))


def apply_all(
    limiter: Provisioner, planned: Plan, done: Callable[[Change], None] = lambda _: None
) -> None:
    """Carries a plan out. If anything fails, what was done before it is taken back."""
    owner = planned.owner
    with contextlib.ExitStack() as undo:
        for part in planned.parts:
            if part.action is Action.DELETE:
                continue
            store_namespace(limiter, part.namespace, owner)
            if part.action is Action.CREATE:
                undo.callback(_suppressed, remove_namespace, limiter, part.namespace, owner)
            scoped = limiter.namespace(part.namespace)
            for change in part.changes:
                carry_out(scoped, change)
                undo.callback(_suppressed, carry_out, scoped, change.undone())
                done(change)
        undo.pop_all()
    for part in planned.parts:
        if part.action is Action.DELETE:
            remove_namespace(limiter, part.namespace, owner)
            continue
        scoped = limiter.namespace(part.namespace)
        made = {c.address for c in part.changes if c.action is Action.CREATE}
        for place in part.claims:
            scoped.claim(place.label, owner, made=place in made)
        for place in part.released:
            scoped.disclaim(place.label, owner)
            scoped.forget(place.label)


def _suppressed(function: Callable[..., object], *args: object) -> None:
    with contextlib.suppress(HeadgateError):
        function(*args)


def _part(
    limiter: Provisioner, name: str, records: Sequence[Record], owner: str, *, exists: bool
) -> Planned:
    places = tuple(address(record) for record in records)
    if not exists:
        _check_parents(None, records)
        return Planned(name, Action.CREATE, plan(records, ()), places)
    scoped = limiter.namespace(name)
    claims = {_address(label): found for label, found in scoped.claimed(owner).items()}
    gone = [place for place in claims if place not in places]
    # What others have written down too, or was there before, stays when this owner lets go.
    ours = {place for place in claims if place in places or _alone(claims[place], owner)}
    stored = current(scoped, dict.fromkeys([*places, *gone]))
    _check_parents(scoped, records)
    changes = plan(records, stored, owned=ours)
    return Planned(name, None, changes, places, tuple(gone))


def _alone(claims: Claims, owner: str) -> bool:
    return claims.made and claims.owners == {owner}


def _address(label: str) -> Address:
    kind, entity_id, resource = label.split("#")
    for known in ("entity", "limits", "costs"):
        if kind == known:
            return Address(known, entity_id or None, resource or None)
    raise ValidationError(f"the ledger holds something that this client does not know: {label!r}")


def _check_parents(limiter: Provisioner | None, records: Sequence[Record]) -> None:
    named = {record.entity_id for record in records if isinstance(record, Entity)}
    for child, parent in _parents(records):
        if parent in named or (limiter is not None and limiter.get_entity(parent) is not None):
            continue
        raise ValidationError(
            f"the parent {parent!r} of entity {child!r} is neither stored nor written down"
        )


def _parents(records: Sequence[Record]) -> Iterator[tuple[str, str]]:
    for record in records:
        if isinstance(record, Entity) and record.parent_id is not None:
            yield record.entity_id, record.parent_id
