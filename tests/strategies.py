"""Hypothesis strategies for what the client computes with: rates, limits, buckets, times, clocks.

Numbers run from the smallest to the largest that are allowed, and are small by preference, where
rounding shows.
"""

from __future__ import annotations

import string

from hypothesis import strategies as st

from headgate.acquire import Grant
from headgate.bucket import BASELINE, MAX_SHARDS, Balance, Rate, Shard
from headgate.clock import Clock
from headgate.limit import MAX_LIMITS, MAX_PERIOD, MAX_TOKENS, RESERVED_NAMES, Limit, LimitSet
from headgate.records import ConfigRecord, Entity
from headgate.schema import Bucket, BucketRef
from headgate.ticket import Claim, Ticket

CENTURY = 100 * 366 * 86_400_000


def sizes(most, least=1):
    """Whole numbers up to `most`, half of them small."""
    return st.integers(least, min(100, most)) | st.integers(least, most)


times = st.integers(0, 86_400_000).map(lambda ms: BASELINE + ms) | st.integers(0, CENTURY).map(
    lambda ms: BASELINE + ms
)
waits = st.integers(0, 5_000) | st.integers(0, 400 * 86_400_000)

refilling_rates = st.builds(
    Rate,
    cp=sizes(MAX_TOKENS).map(lambda tokens: tokens * 1000),
    ra=sizes(MAX_TOKENS).map(lambda tokens: tokens * 1000),
    rp=sizes(MAX_PERIOD).map(lambda seconds: seconds * 1000),
)
quotas = refilling_rates.map(lambda rate: rate._replace(ra=0))
rates = st.one_of(refilling_rates, refilling_rates, quotas)

# Millitokens, not only whole tokens: the arithmetic must be right for any integer.
amounts = st.integers(1, 10_000) | st.integers(1, MAX_TOKENS * 1000)

shards = st.sampled_from([2**power for power in range(MAX_SHARDS.bit_length())]).flatmap(
    lambda n: st.integers(0, n - 1).map(lambda i: Shard(i, n))
)
whole = st.just(Shard(0, 1))


@st.composite
def balances(draw, rates=rates, shards=whole, now=None):
    """A balance anywhere from deep in debt to far over its cap at `now`."""
    rate, shard = draw(rates), draw(shards)
    at = draw(times) if now is None else now
    empty = -(((at - BASELINE) * rate.ra // rate.rp + shard.i) // shard.n)
    held = draw(st.integers(-3 * rate.cp, 3 * rate.cp) | st.integers(-2_000, 2_000))
    return Balance(rate, empty + held, draw(st.integers(0, 10**18)), shard)


names = (
    st.text(string.ascii_letters + string.digits + "_", min_size=1, max_size=32)
    # Names that look like the attributes of other limits.
    | st.sampled_from(["rpm", "rpm_tk", "rpm_cp", "rpm_cp_cp", "b_rpm", "l_rpm_ra", "wcu_tk"])
).filter(lambda name: name[0].isalpha() and name.lower() not in RESERVED_NAMES)

limits = st.builds(
    Limit,
    name=names,
    capacity=sizes(MAX_TOKENS),
    refill_amount=sizes(MAX_TOKENS, least=0),
    refill_period=sizes(MAX_PERIOD),
)
limit_sets = st.lists(limits, min_size=1, max_size=MAX_LIMITS, unique_by=lambda x: x.name).map(
    LimitSet
)
small_limit_sets = st.lists(limits, min_size=1, max_size=4, unique_by=lambda x: x.name).map(
    LimitSet
)


def ids(most):
    """Any text that may name an entity or a resource: no `#`, no control, no space at the ends."""
    alphabet = st.characters(codec="utf-8", exclude_categories=("Cc",), exclude_characters="#")
    wild = st.text(alphabet, min_size=1, max_size=most)
    # The characters that keys are made of, and the words.
    sly = st.lists(
        st.sampled_from([*"/|:._-@ ", "BUCKET", "ENTITY", "STATE", "0"]), min_size=1, max_size=12
    ).map("".join)
    return (wild | sly).filter(lambda x: x == x.strip() and len(x.encode()) <= most)


entity_ids = ids(256)
resources = ids(128).filter(lambda name: name != "_default_")
namespace_ids = st.text(string.ascii_letters + string.digits + "_-", min_size=11, max_size=11)
refs = st.builds(BucketRef, namespace_ids, entity_ids, resources)


@st.composite
def buckets(draw, limit_sets=small_limit_sets, shards=shards, now=None):
    """A bucket item's content, with balances of all kinds at `now`."""
    limits, shard = draw(limit_sets), draw(shards)
    at = draw(times) if now is None else now
    held = [draw(balances(st.just(rate), st.just(shard), at)) for rate in limits.rates]
    return Bucket(
        shard,
        limits,
        tuple(balance.tk for balance in held),
        tuple(balance.tc for balance in held),
        draw(st.integers(-(10**15), 10**6)),
        draw(st.integers(0, 10**15)),
        draw(st.booleans()),
        draw(st.none() | entity_ids),
    )


@st.composite
def tickets(draw):
    """Tickets of a few buckets, some with parents, that hold something of some of their shards."""
    ns = draw(namespace_ids)
    pairs = draw(st.lists(st.tuples(entity_ids, resources), min_size=1, max_size=4, unique=True))
    ancestors = st.lists(entity_ids, max_size=3, unique=True)
    parts = tuple(
        Claim(
            BucketRef(ns, who, what),
            tuple(BucketRef(ns, parent, what) for parent in draw(ancestors) if parent != who),
        )
        for who, what in pairs
    )
    refs = [ref for part in parts for ref in (part.ref, *part.parents)]
    items = st.tuples(st.sampled_from(refs), st.integers(0, MAX_SHARDS - 1))
    held = st.dictionaries(names, amounts, min_size=1, max_size=3)
    grants = draw(st.dictionaries(items, held, max_size=6))
    return Ticket(
        draw(st.text("0123456789abcdef", min_size=24, max_size=24)),
        ns,
        draw(st.integers(1, 10**11)),
        parts,
        tuple(Grant(ref, shard, some) for (ref, shard), some in grants.items()),
    )


config_records = st.builds(
    ConfigRecord,
    st.none() | limit_sets,
    st.sampled_from([None, "allow", "block"]),
    st.integers(1, 10**6),
)
entities = st.builds(
    Entity,
    entity_ids,
    st.none() | entity_ids,
    st.booleans(),
    st.none() | st.text(max_size=20),
    st.dictionaries(st.text(min_size=1, max_size=10), st.text(max_size=10), max_size=3),
    st.integers(1, 10**6),
)


@st.composite
def clocks(draw, most_off=86_400_000):
    """A clock that is off by so many milliseconds, its source and the true time."""
    truth = [draw(times)]
    off = draw(st.integers(-most_off, most_off))
    return Clock(lambda: truth[0] + off), off, truth
