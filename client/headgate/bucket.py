"""The token bucket's arithmetic: integers only, no clock, no I/O.

A balance `tk` is what the bucket would have held at the baseline. What has accrued since is
never stored, only compared against, so nothing is lost or gained by rounding however often a
bucket is touched: differences of floors telescope.

    level      tk + share(accrued)        the balance now, before the cap
    available  min(level, share(cp))      what can be drawn
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple, NewType

Millitokens = NewType("Millitokens", int)
Milliseconds = NewType("Milliseconds", int)

BASELINE = Milliseconds(1_704_067_200_000)  # 2024-01-01T00:00:00Z, the `rf` of every bucket
SLACK = Milliseconds(100)
MAX_SHARDS = 64


class Rate(NamedTuple):
    """A limit in the units of the arithmetic: `cp` at most, `ra` every `rp`."""

    cp: Millitokens
    ra: Millitokens
    rp: Milliseconds


class Shard(NamedTuple):
    """Shard `i` of `n`. The item that holds it says so of itself."""

    i: int
    n: int


WHOLE = Shard(0, 1)

# Every write to an item is drawn from this, undivided: DynamoDB takes 1,000 a second on a key.
WCU = Rate(Millitokens(1_000_000), Millitokens(1_000_000), Milliseconds(1_000))
WCU_COST = Millitokens(1_000)
# How far it may be overdrawn before a key counts as out of writes: what accrues in two seconds,
# so that clients whose clocks differ by less do not take each other for a crowd.
WCU_GRACE = Millitokens(2_000_000)


class Balance(NamedTuple):
    """One limit of one shard: what it holds as of the baseline, what was ever drawn from it."""

    rate: Rate
    tk: Millitokens
    tc: Millitokens
    shard: Shard = WHOLE


def share(amount: int, shard: Shard) -> Millitokens:
    """The shard's part of an amount. The parts of all shards add up to the amount."""
    return Millitokens((amount + shard.i) // shard.n)


def accrued(rate: Rate, now: Milliseconds) -> Millitokens:
    """What the whole limit earned from the baseline until now."""
    return Millitokens((now - BASELINE) * rate.ra // rate.rp)


def earned(rate: Rate, shard: Shard, now: Milliseconds) -> Millitokens:
    """What the shard earned from the baseline until now."""
    return share((now - BASELINE) * rate.ra // rate.rp, shard)


def slack(rate: Rate, shard: Shard) -> Millitokens:
    """How far over the cap a balance may stand uncut: what accrues in 100 ms."""
    return share(SLACK * rate.ra // rate.rp, shard)


def ceiling(rate: Rate, shard: Shard, now: Milliseconds) -> Millitokens:
    """The `tk` of a full bucket."""
    return Millitokens(share(rate.cp, shard) - earned(rate, shard, now))


def level(balance: Balance, now: Milliseconds) -> Millitokens:
    """The balance now, before the cap: above it after idle time, negative in debt."""
    return Millitokens(balance.tk + earned(balance.rate, balance.shard, now))


def calculate_available(balance: Balance, now: Milliseconds) -> Millitokens:
    """What can be drawn now."""
    return Millitokens(min(level(balance, now), share(balance.rate.cp, balance.shard)))


def refill_bucket(balance: Balance, now: Milliseconds) -> Balance:
    """The same balance with the cap applied: what overflowed is gone."""
    return balance._replace(
        tk=Millitokens(min(balance.tk, ceiling(balance.rate, balance.shard, now)))
    )


def would_refill_satisfy(balance: Balance, amount: Millitokens, now: Milliseconds) -> bool:
    """Whether the amount can be drawn now, all that accrued included. Nothing always can."""
    return not amount or calculate_available(balance, now) >= amount


def try_consume(balance: Balance, amount: Millitokens, now: Milliseconds) -> Balance | None:
    """The balance after drawing the amount, or None if it is short."""
    if not would_refill_satisfy(balance, amount, now):
        return None
    return force_consume(balance, amount, now)


def force_consume(balance: Balance, amount: Millitokens, now: Milliseconds) -> Balance:
    """The balance after drawing the amount, into debt if need be. The cap is applied first."""
    capped = refill_bucket(balance, now)
    return capped._replace(tk=Millitokens(capped.tk - amount), tc=Millitokens(capped.tc + amount))


def calculate_retry_after(
    balance: Balance, amount: Millitokens, now: Milliseconds
) -> Milliseconds | None:
    """The time until the amount can be drawn: 0 if it can, None if it never can."""
    if would_refill_satisfy(balance, amount, now):
        return Milliseconds(0)
    rate, shard = balance.rate, balance.shard
    if amount > share(rate.cp, shard) or rate.ra == 0:
        return None
    # The least t with share(accrued(t)) >= amount - tk, both floors undone exactly.
    wanted = (amount - balance.tk) * shard.n - shard.i
    return Milliseconds(BASELINE + -(-wanted * rate.rp // rate.ra) - now)


def time_to_full(rate: Rate, shard: Shard, from_level: int) -> Milliseconds | None:
    """How long a balance of `from_level` takes to reach the cap; None if it never does."""
    missing = (share(rate.cp, shard) - from_level) * shard.n
    if missing <= 0:
        return Milliseconds(0)
    if rate.ra == 0:
        return None
    return Milliseconds(-(-missing * rate.rp // rate.ra) + 1)


@dataclass(frozen=True, slots=True)
class LimitStatus:
    """Where one limit stands, in whole tokens: `available` is rounded down, negative in debt.

    `retry_after` is the time until the request would pass and `full_after` until the bucket is
    full again, in seconds; None where that never comes.
    """

    name: str
    capacity: int
    available: int
    requested: int
    short: bool
    retry_after: float | None
    refill_amount: int
    refill_period: int
    full_after: float | None

    def as_dict(self) -> dict[str, Any]:
        """The same as plain data."""
        return {slot: getattr(self, slot) for slot in self.__slots__}


def build_limit_status(
    name: str, balance: Balance, amount: Millitokens, now: Milliseconds
) -> LimitStatus:
    """The status of an unsharded limit for a request of this amount."""
    holds = calculate_available(balance, now)
    return limit_status(
        name,
        balance.rate,
        holds,
        amount,
        calculate_retry_after(balance, amount, now),
        time_to_full(balance.rate, WHOLE, holds),
    )


def limit_status(
    name: str,
    rate: Rate,
    holds: Millitokens,
    amount: Millitokens,
    retry_after: Milliseconds | None,
    full_after: Milliseconds | None,
) -> LimitStatus:
    """A status from its parts, in the units that users see."""
    return LimitStatus(
        name=name,
        capacity=rate.cp // 1000,
        available=holds // 1000,
        requested=amount // 1000,
        short=bool(amount) and holds < amount,
        retry_after=None if retry_after is None else retry_after / 1000,
        refill_amount=rate.ra // 1000,
        refill_period=rate.rp // 1000,
        full_after=None if full_after is None else full_after / 1000,
    )
