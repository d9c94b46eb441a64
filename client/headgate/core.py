"""The state that all operations of one limiter share, and the one way to the table."""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal

from headgate.breaker import Breaker, BreakerState
from headgate.bucket import Milliseconds
from headgate.cache import Bounded
from headgate.clock import Clock
from headgate.effects import Answer, Call, Flow, Outcome, Refused, Throttled, Unreachable
from headgate.errors import HeadgateError, RateLimiterUnavailable, ValidationError
from headgate.limit import Limit, LimitSet
from headgate.records import ConfigRecord, Place
from headgate.schema import Decoder, NamespaceId, namespace_id, namespace_name
from headgate.views import Views

logger = logging.getLogger("headgate")

OnUnavailable = Literal["allow", "block"]


@dataclass(frozen=True, slots=True)
class Event:
    """Something worth counting, for the metrics callback. Entity ids are never in it.

    Names: `admitted`, `rejected`, `degraded`, `unavailable`, `failed`, `adjust_lost`,
    `release_lost`, `breaker_opened`, `breaker_closed`. The first five end an acquire: their
    attribute `ms` is how long it took; `admitted` has the `tokens` of its first request.
    """

    name: str
    resource: str | None = None
    attributes: dict[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class CacheStats:
    """How the configuration cache is doing."""

    hits: int
    misses: int
    size: int


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Everything about a limiter that does not change. Validated once, here."""

    table: str
    namespace: str = "default"
    namespace_id: str | None = None
    limits: Sequence[Limit] = ()
    on_unavailable: OnUnavailable = "block"
    attempts: int = 2
    config_ttl: float = 60.0
    rejection_memory: float = 1.0
    max_cached: int = 50_000
    on_event: Callable[[Event], None] | None = None
    principal: str | Callable[[], str] | None = None
    audit_days: int = 90

    def __post_init__(self) -> None:
        if not str(self.table or ""):
            raise ValidationError(f"table must be the table's name: {self.table!r}")
        namespace_name(self.namespace)
        if self.namespace_id is not None:
            namespace_id(self.namespace_id)
        policy(self.on_unavailable)
        if not (
            self.principal is None or isinstance(self.principal, str) or callable(self.principal)
        ):
            raise ValidationError(
                f"principal must be a name or a function that gives one: {self.principal!r}"
            )
        for name, least in (("attempts", 1), ("max_cached", 1), ("audit_days", 1)):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < least:
                raise ValidationError(f"{name} must be a whole number from {least}: {value!r}")
        for name in ("config_ttl", "rejection_memory"):
            seconds(name, getattr(self, name))


def policy(value: object) -> OnUnavailable:
    """The policy, checked."""
    if value == "allow" or value == "block":
        return value
    raise ValidationError(f"on_unavailable must be 'allow' or 'block': {value!r}")


def seconds(what: str, value: object) -> float:
    """A time in seconds, checked."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1e9:
        raise ValidationError(f"{what} must be a number of seconds from 0: {value!r}")
    return float(value)


@dataclass(slots=True)
class Identity:
    """Whose credentials these are, once that was asked. Shared by all namespaces of a limiter."""

    name: str | None = None


class Core:
    """Clock, breaker, views and caches of one limiter. Flows do the rest."""

    def __init__(
        self,
        settings: Settings,
        *,
        clock: Clock | None = None,
        breaker: Breaker | None = None,
        rng: random.Random | None = None,
        identity: Identity | None = None,
    ) -> None:
        self.settings = settings
        self.table = settings.table
        self.ns = NamespaceId(settings.namespace_id) if settings.namespace_id else None
        self.clock = clock or Clock()
        self.breaker = breaker or Breaker()
        self.rng = rng or random.Random()
        # Of what must not come twice: a process that was forked, or a snapshot that was resumed
        # twice, has the same generator as its twin.
        self.unique = rng or random.SystemRandom()
        self.identity = identity or Identity()
        self.decoder = Decoder()
        self.views = Views(settings.max_cached)
        self.records: Bounded[Place, tuple[Milliseconds, ConfigRecord]] = Bounded(
            max(100, settings.max_cached // 5)
        )
        self.hits = 0
        self.misses = 0
        self.epoch = 0
        self.version_checked = False
        self.filed = Milliseconds(0), 0  # when the last event was, and its turn
        self.stored_policy: OnUnavailable | None = None
        self.defaults = self.decoder.intern(LimitSet(settings.limits)) if settings.limits else None

    def now(self) -> Milliseconds:
        """The time to compute with."""
        return self.clock.now()

    def emit(self, name: str, resource: str | None = None, **attributes: object) -> None:
        """Tells the metrics callback. Its failures are its own."""
        if self.settings.on_event is None:
            return
        try:
            self.settings.on_event(Event(name, resource, attributes))
        except Exception:
            logger.exception("the on_event callback failed")

    def call(self, *requests: Call) -> Flow[Sequence[Outcome]]:
        """Sends requests concurrently; repeats those that got no answer and may be repeated.

        All traffic passes here, so this is where the breaker learns, and where it answers.
        """
        if not self.breaker.allows(self.now()):
            raise RateLimiterUnavailable("the breaker is open")
        outcomes = list((yield requests))
        for _ in range(self.settings.attempts - 1):
            lost = [
                position
                for position, outcome in enumerate(outcomes)
                if isinstance(outcome, Unreachable) and requests[position].repeatable
            ]
            if not lost:
                break
            again = yield tuple(requests[position] for position in lost)
            for position, outcome in zip(lost, again, strict=True):
                outcomes[position] = outcome
        before = self.breaker.state
        if all(isinstance(outcome, Unreachable) for outcome in outcomes):
            self.breaker.failed(self.now())
        else:
            self.breaker.succeeded()
        if self.breaker.state is not before:
            self._breaker_changed(before)
        return outcomes

    def ask(self, request: Call) -> Flow[Answer]:
        """One request that is expected to succeed; anything else is raised."""
        (outcome,) = yield from self.call(request)
        if isinstance(outcome, Answer):
            return outcome
        raise failure(outcome)

    def _breaker_changed(self, before: BreakerState) -> None:
        state = self.breaker.state
        if state is BreakerState.OPEN:
            logger.warning("the table does not answer: breaker open (was %s)", before.value)
            self.emit("breaker_opened")
        elif state is BreakerState.CLOSED:
            logger.info("the table answers again: breaker closed")
            self.emit("breaker_closed")


def failure(outcome: Outcome) -> Exception:
    """What to raise for an outcome that its caller cannot do anything about."""
    match outcome:
        case Refused(error):
            return error
        case Unreachable(reason):
            return RateLimiterUnavailable(reason)
        case Throttled(reason):
            return RateLimiterUnavailable(reason, throttled=True)
        case _:
            return HeadgateError(f"unexpected outcome: {outcome!r}")
