"""Limits as users state them, sets of them as buckets hold them, and their status."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, TypeAlias

from headgate.bucket import Milliseconds, Millitokens, Rate
from headgate.errors import ValidationError

MAX_TOKENS = 10**12
MAX_PERIOD = 366 * 86_400
MAX_LIMITS = 16

# `wcu` is the infrastructure's own limit. The others are attributes of stored items: a limit
# may not share a name with one, so that no flat view of an item can confuse the two.
RESERVED_NAMES = frozenset(
    "wcu pk sk ttl rf lv name entity_id resource shard_count cascade parent_id metadata version "
    "window window_start total_events acquires seen config_version on_unavailable mode "
    "costs".split()
)
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,31}")

Mode: TypeAlias = Literal["normal", "disabled", "bypass"]
"""What an operator has decided: to limit, to reject all, or to admit all and keep counting."""

MODES: tuple[Mode, ...] = ("disabled", "bypass", "normal")  # the strongest first


def limit_name(value: object) -> str:
    """A limit's name, checked."""
    if not isinstance(value, str) or not _NAME.fullmatch(value):
        raise ValidationError(
            f"a limit's name is a letter, then up to 31 letters, digits or _: {value!r}"
        )
    if value.lower() in RESERVED_NAMES:
        raise ValidationError(f"the limit name {value!r} is reserved")
    return value


def whole(what: str, value: object, *, least: int = 1, most: int = MAX_TOKENS) -> int:
    """The value if it is a whole number in range; a ValidationError that shows it if not."""
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise ValidationError(f"{what} must be a whole number from {least} to {most}: {value!r}")
    return value


@dataclass(frozen=True, slots=True)
class Limit:
    """A token bucket: holds `capacity`, regains `refill_amount` every `refill_period` seconds."""

    name: str
    capacity: int
    refill_amount: int
    refill_period: int

    def __post_init__(self) -> None:
        limit_name(self.name)
        whole(f"capacity of limit {self.name!r}", self.capacity)
        whole(f"refill_amount of limit {self.name!r}", self.refill_amount, least=0)
        whole(f"refill_period of limit {self.name!r}", self.refill_period, most=MAX_PERIOD)

    @classmethod
    def per_second(cls, name: str, amount: int, burst: int | None = None) -> Limit:
        """`amount` a second, of which `burst` (default: `amount`) may be taken at once."""
        return cls(name, amount if burst is None else burst, amount, 1)

    @classmethod
    def per_minute(cls, name: str, amount: int, burst: int | None = None) -> Limit:
        """`amount` a minute, of which `burst` (default: `amount`) may be taken at once."""
        return cls(name, amount if burst is None else burst, amount, 60)

    @classmethod
    def per_hour(cls, name: str, amount: int, burst: int | None = None) -> Limit:
        """`amount` an hour, of which `burst` (default: `amount`) may be taken at once."""
        return cls(name, amount if burst is None else burst, amount, 3_600)

    @classmethod
    def per_day(cls, name: str, amount: int, burst: int | None = None) -> Limit:
        """`amount` a day, of which `burst` (default: `amount`) may be taken at once."""
        return cls(name, amount if burst is None else burst, amount, 86_400)

    @classmethod
    def custom(cls, name: str, *, capacity: int, refill_amount: int, refill_period: int) -> Limit:
        """Any bucket. `refill_amount=0` makes a quota that only `release` gives back."""
        return cls(name, capacity, refill_amount, refill_period)

    @property
    def rate(self) -> Rate:
        """The same in the units of the arithmetic."""
        return Rate(
            Millitokens(self.capacity * 1000),
            Millitokens(self.refill_amount * 1000),
            Milliseconds(self.refill_period * 1000),
        )


class LimitSet:
    """The limits of one bucket, in order of name, with the fingerprint that names them.

    Immutable and shared: thousands of views of buckets point to one set. The mode is part of it,
    so that a client that does not know of a change has its write refused, and learns.
    """

    def __init__(self, limits: Iterable[Limit], mode: Mode = "normal") -> None:
        self.mode = mode
        given = tuple(limits)
        for limit in given:
            if not isinstance(limit, Limit):
                raise ValidationError(f"limits must be Limit objects: {limit!r}")
        self.limits = tuple(sorted(given, key=lambda limit: limit.name))
        self.names = tuple(limit.name for limit in self.limits)
        if not 1 <= len(self.names) <= MAX_LIMITS:
            raise ValidationError(
                f"a bucket has from 1 to {MAX_LIMITS} limits: {len(self.names)} given"
            )
        if len(set(self.names)) < len(self.names):
            raise ValidationError(f"two limits have one name: {', '.join(self.names)}")
        self.rates = tuple(limit.rate for limit in self.limits)
        self.positions = {name: position for position, name in enumerate(self.names)}

    @cached_property
    def fingerprint(self) -> str:
        """`lv`: equal for equal limits, different for any difference."""
        text = "|".join(
            f"{name}:{r.cp}:{r.ra}:{r.rp}" for name, r in zip(self.names, self.rates, strict=True)
        )
        if self.mode != "normal":
            text += f"|{self.mode}"
        return base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()[:6]).decode()

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, LimitSet) and self.limits == other.limits and self.mode == other.mode
        )

    def __hash__(self) -> int:
        return hash((self.limits, self.mode))

    def __repr__(self) -> str:
        return f"LimitSet({', '.join(map(repr, self.limits))}, mode={self.mode!r})"

    def in_mode(self, mode: Mode) -> LimitSet:
        """The same limits in another mode."""
        return self if mode == self.mode else LimitSet(self.limits, mode)

    def amounts(self, consume: Mapping[str, Millitokens]) -> tuple[Millitokens, ...]:
        """Amounts in the set's order. A name that is not in the set is a ValidationError."""
        unknown = [name for name in consume if name not in self.positions]
        if unknown:
            raise ValidationError(
                f"no limit named {', '.join(map(repr, unknown))}: the limits here are "
                f"{', '.join(self.names)}"
            )
        return tuple(consume.get(name, Millitokens(0)) for name in self.names)


def checked_mode(value: object) -> Mode:
    """The mode, checked."""
    for mode in MODES:
        if value == mode:
            return mode
    raise ValidationError(f"mode must be one of {', '.join(MODES)}: {value!r}")


def as_amounts(what: str, consume: object, *, least: int = 1) -> dict[str, Millitokens]:
    """Whole tokens as given by a caller, checked, in millitokens."""
    if not isinstance(consume, Mapping) or not consume:
        raise ValidationError(
            f"{what} must name at least one limit, like {{'rpm': 1}}: {consume!r}"
        )
    return {
        name: Millitokens(1000 * whole(f"{what}[{name!r}]", amount, least=least))
        for name, amount in consume.items()
    }
