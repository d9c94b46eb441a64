"""What a lease holds, as data that can be kept, sent and settled elsewhere.

A ticket is as good as what it says: it is not signed, and whoever can alter one can invent
tokens. Keep it where only your own code writes, or sign it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from headgate.acquire import Grant
from headgate.bucket import MAX_SHARDS
from headgate.core import Core, seconds
from headgate.errors import ValidationError
from headgate.held import joined, tokens
from headgate.limit import MAX_TOKENS, limit_name, whole
from headgate.schema import (
    BucketRef,
    NamespaceId,
    checked_entity,
    checked_resource,
    namespace_id,
)
from headgate.several import MAX_BUCKETS

MAX_LIFE = 7 * 86_400  # seconds
MAX_GRANTS = 99  # a transaction has 100 actions, and one is the mark that it was made
MAX_PARENTS = 16
MAX_HELD = 1_000 * 1_000 * MAX_TOKENS  # of one limit at one item, in millitokens
_ID = re.compile(r"[0-9a-f]{24}")
_FIELDS = ("id", "ns", "exp", "buckets", "parts", "grants")


class Claim(NamedTuple):
    """A bucket that was asked for, and those that it cascaded to."""

    ref: BucketRef
    parents: tuple[BucketRef, ...] = ()


@dataclass(frozen=True, slots=True)
class Ticket:
    """What was drawn and from where, until when it can be settled (seconds since the epoch), and
    an id that lets that happen once. Made by `lease.ticket()`, used by `limiter.adjust(ticket,
    ...)` and `limiter.release(ticket)`. Not signed: whoever can alter one can invent tokens.
    """

    id: str
    namespace_id: NamespaceId
    expires: int
    parts: tuple[Claim, ...]
    grants: tuple[Grant, ...]

    def __post_init__(self) -> None:
        _check_id(self.id)
        namespace_id(self.namespace_id)
        whole("a ticket's expiry", self.expires)
        if not 1 <= len(self.parts) <= MAX_BUCKETS:
            raise ValidationError(
                f"a ticket has from 1 to {MAX_BUCKETS} parts: {len(self.parts)} given"
            )
        for part in self.parts:
            _check_claim(self.namespace_id, part)
        if len({part.ref for part in self.parts}) < len(self.parts):
            raise ValidationError(f"a ticket has each part once: {self.parts!r:.200}")
        if len(self.grants) > MAX_GRANTS:
            raise ValidationError(
                f"a ticket holds tokens of at most {MAX_GRANTS} items, each a bucket or a shard of "
                f"one, and these are {len(self.grants)}"
            )
        known = set(self.refs)
        for grant in self.grants:
            _check_grant(known, grant)
        if len({(grant.ref, grant.shard) for grant in self.grants}) < len(self.grants):
            raise ValidationError(f"a ticket has one grant for each item: {self.grants!r:.200}")

    @property
    def refs(self) -> tuple[BucketRef, ...]:
        """All buckets that it concerns, in an order that its data alone decides."""
        return tuple(dict.fromkeys(ref for part in self.parts for ref in (part.ref, *part.parents)))

    @property
    def consumed(self) -> dict[str, int]:
        """Tokens held of the first part, by limit."""
        return tokens(self.grants, self.parts[0].ref)

    def as_dict(self) -> dict[str, Any]:
        """The same as compact data, for JSON."""
        places = {ref: place for place, ref in enumerate(self.refs)}
        return {
            "id": self.id,
            "ns": self.namespace_id,
            "exp": self.expires,
            "buckets": [[ref.entity_id, ref.resource] for ref in self.refs],
            "parts": [[places[p.ref], [places[ref] for ref in p.parents]] for p in self.parts],
            "grants": grants_as_data(self.grants, self.refs),
        }

    @classmethod
    def from_dict(cls, data: object) -> Ticket:
        """The ticket that this data says, all of it checked."""
        if not isinstance(data, Mapping) or set(data) != set(_FIELDS):
            raise ValidationError(f"a ticket has {', '.join(_FIELDS)}: {data!r:.200}")
        ns = namespace_id(data["ns"])
        refs = [
            BucketRef(ns, checked_entity(who), checked_resource(what))
            for who, what in _rows("buckets", data["buckets"], 2)
        ]
        parts = tuple(
            Claim(_at(refs, own), tuple(_at(refs, place) for place in _list("parents", parents)))
            for own, parents in _rows("parts", data["parts"], 2)
        )
        found = cls(data["id"], ns, data["exp"], parts, grants_from_data(data["grants"], refs))
        if list(found.refs) != refs:
            raise ValidationError(f"a ticket's buckets are those of its parts: {refs!r:.200}")
        return found


def issue(
    core: Core,
    claims: Iterable[Claim],
    grants: Iterable[Grant],
    expires_in: float,
) -> Ticket:
    """A ticket for what is held."""
    if not 1 <= seconds("expires_in", expires_in) <= MAX_LIFE:
        raise ValidationError(f"expires_in must be from 1 to {MAX_LIFE} seconds: {expires_in!r}")
    assert core.ns is not None, "whoever drew something knows the namespace"
    return Ticket(
        f"{core.unique.getrandbits(96):024x}",
        core.ns,
        -(-(core.now() + int(expires_in * 1000)) // 1000),
        tuple(claims),
        joined(grants),
    )


def grants_as_data(grants: Iterable[Grant], refs: Sequence[BucketRef]) -> list[Any]:
    """Grants with their buckets by place."""
    places = {ref: place for place, ref in enumerate(refs)}
    return [[places[grant.ref], grant.shard, dict(grant.amounts)] for grant in grants]


def grants_from_data(data: object, refs: Sequence[BucketRef]) -> tuple[Grant, ...]:
    """The grants that this data says. What they say is checked by the ticket they are put into."""
    return tuple(
        Grant(_at(refs, place), shard, amounts)
        for place, shard, amounts in _rows("grants", data, 3)
    )


def _check_id(value: object) -> None:
    if not isinstance(value, str) or not _ID.fullmatch(value):
        raise ValidationError(f"a ticket's id has 24 hexadecimal digits: {value!r:.200}")


def _check_claim(ns: NamespaceId, part: Claim) -> None:
    if len(part.parents) > MAX_PARENTS:
        raise ValidationError(f"a part has at most {MAX_PARENTS} parents: {len(part.parents)}")
    for ref in (part.ref, *part.parents):
        if (ref.ns, ref.resource) != (ns, part.ref.resource):
            raise ValidationError(f"parts and parents are of one namespace and resource: {ref!r}")
        checked_entity(ref.entity_id)
        checked_resource(ref.resource)
    if len({part.ref, *part.parents}) < 1 + len(part.parents):
        raise ValidationError(f"a part has each of its parents once: {part!r:.200}")


def _check_grant(known: set[BucketRef], grant: Grant) -> None:
    if grant.ref not in known:
        raise ValidationError(f"a grant is of a part or of its parent: {grant!r:.200}")
    whole("a grant's shard", grant.shard, least=0, most=MAX_SHARDS - 1)
    for name, amount in _amounts(grant.amounts).items():
        whole(f"a grant's {limit_name(name)}", amount, most=MAX_HELD)


def _amounts(data: object) -> Mapping[Any, object]:
    if not isinstance(data, Mapping) or not data:
        raise ValidationError(f"a grant has amounts by limit: {data!r:.200}")
    return data


def _list(what: str, data: object) -> Sequence[Any]:
    if not isinstance(data, list | tuple):
        raise ValidationError(f"a ticket's {what} are a list: {data!r:.200}")
    return data


def _rows(what: str, data: object, width: int) -> list[Sequence[Any]]:
    rows = [_list(what, row) for row in _list(what, data)]
    for row in rows:
        if len(row) != width:
            raise ValidationError(f"each of a ticket's {what} has {width} fields: {row!r:.200}")
    return rows


def _at(refs: Sequence[BucketRef], place: object) -> BucketRef:
    if not refs:
        raise ValidationError("a ticket has at least one bucket: [] given")
    return refs[whole("a ticket's place", place, least=0, most=len(refs) - 1)]
