"""Many acquires at one call, each on its own; and what a lease shows of all its buckets."""

from __future__ import annotations

import asyncio
import uuid

import pytest

from headgate import (
    Blocked,
    Limit,
    LimitsNotFound,
    RateLimiterUnavailable,
    RateLimitExceeded,
    Request,
    TableError,
    ValidationError,
)
from headgate.effects import Refused
from tests.behaviour.backends import NAMESPACE_ID
from tests.limiters import AgreedClock, Async, Sync, Time, create_table

RPM = Limit.per_minute("rpm", 10)
TPM = Limit.per_minute("tpm", 1_000)
EACH = ("alice", "bob", "carol")


@pytest.fixture
def limiter(backend):
    return backend.limiter(limits=[RPM, TPM])


def asks(entity="alice", rpm=1, resource="gpt-4"):
    return Request(entity, resource, {"rpm": rpm})


def left(limiter, entity="alice"):
    return limiter.available(entity, "gpt-4")["rpm"]


def available(statuses):
    return {status.name: status.available for status in statuses}


def test_each_group_passes_or_fails_on_its_own(limiter):
    groups = [[asks("alice", 4)], [asks("bob", 11)], [asks("carol", 1), asks("dave", 2)]]
    alice, bob, both = limiter.acquire_each(groups)
    assert alice.consumed == {"rpm": 4}
    assert isinstance(bob, RateLimitExceeded)
    assert bob.blocked == (Blocked("bob", "gpt-4", "rpm"),)
    assert both.consumed == {"rpm": 1}
    assert [left(limiter, name) for name in ("alice", "bob", "carol", "dave")] == [6, 10, 9, 8]


def test_a_group_is_all_or_nothing(limiter):
    (refused,) = limiter.acquire_each([[asks("alice", 4), asks("bob", 11)]])
    assert (refused.entity_id, refused.blocked[0].limit) == ("bob", "rpm")
    assert (left(limiter, "alice"), left(limiter, "bob")) == (10, 10)


def test_known_buckets_take_one_round_trip_for_all_groups(limiter):
    groups = [[asks(name)] for name in EACH]
    limiter.acquire_each(groups)
    with limiter.sending() as sent:
        limiter.acquire_each(groups)
    assert sent == ["UpdateItem"] * 3


def test_what_was_taken_stays_taken_and_each_lease_corrects_its_own(limiter):
    alice, bob = limiter.acquire_each([[asks("alice", 4)], [asks("bob", 4)]])
    alice.adjust(rpm=1)
    bob.release()
    assert (left(limiter, "alice"), left(limiter, "bob")) == (5, 10)


def test_no_groups_are_no_work(limiter):
    with limiter.sending() as sent:
        assert limiter.acquire_each([]) == []
    assert sent == []


@pytest.mark.parametrize(
    "bad",
    [
        [],
        [asks("a#b")],
        [asks(rpm=0)],
        [asks(rpm=1.5)],
        [asks()] * 26,
        [asks(resource="_default_")],
        [Request("alice", "gpt-4", {"tmp": 1}, limits=[RPM])],
    ],
)
def test_bad_input_of_any_group_is_found_before_anything_is_sent(limiter, bad):
    with limiter.sending() as sent, pytest.raises(ValidationError):
        limiter.acquire_each([[asks()], bad])
    assert sent == []


def test_more_groups_than_are_allowed_are_refused(limiter):
    with limiter.sending() as sent, pytest.raises(ValidationError, match=r"100.*101"):
        limiter.acquire_each([[asks()]] * 101)
    assert sent == []


def test_groups_whose_limits_nobody_set_do_not_hold_up_the_others(backend):
    limiter = backend.limiter()
    limiter.set_limits([RPM], resource="gpt-4")
    good, bad = limiter.acquire_each([[asks()], [asks(resource="unheard-of")]])
    assert good.consumed == {"rpm": 1}
    assert isinstance(bad, LimitsNotFound)


def test_an_outage_is_decided_by_the_policy_for_each_and_once_for_all(backend):
    limiter = backend.limiter(limits=[RPM], attempts=1, namespace_id=None)
    limiter.cut()
    with limiter.sending() as sent:
        results = limiter.acquire_each([[asks(name)] for name in EACH])
    assert [type(result) for result in results] == [RateLimiterUnavailable] * 3
    assert len(sent) == 1
    results = limiter.acquire_each([[asks(name)] for name in EACH], on_unavailable="allow")
    assert [lease.degraded for lease in results] == [True] * 3
    assert results[0].limits_of("alice", "gpt-4") == ()


def test_a_lease_shows_the_limits_of_every_bucket_it_drew_from(limiter):
    limiter.create_entity("acme")
    limiter.create_entity("alice", parent_id="acme", cascade=True)
    requests = [asks("alice", 2), asks("203.0.113.7", 3)]
    with limiter.acquire_all(requests) as lease:
        assert available(lease.limits_of("alice", "gpt-4"))["rpm"] == 8
        assert available(lease.limits_of("203.0.113.7", "gpt-4"))["rpm"] == 7
        assert available(lease.limits_of("acme", "gpt-4"))["rpm"] == 8
        assert lease.limits_of("alice", "gpt-4") == lease.limits
        assert lease.limits_of("alice", "other") == lease.limits_of("nobody", "gpt-4") == ()


# ---------------------------------------------------------------- side by side


@pytest.fixture
def table(ministack):
    name = f"table-{uuid.uuid4().hex}"
    create_table(name, ministack.endpoint_url)
    return {
        "table": name,
        "endpoint_url": ministack.endpoint_url,
        "namespace_id": NAMESPACE_ID,
        "limits": [RPM],
    }


# moto checks a condition and writes in two steps: what runs side by side needs a real engine.
@pytest.mark.parametrize("kind", [Sync, Async])
def test_one_bucket_may_be_in_many_groups(table, kind):
    limiter = kind.made(**table, clock=AgreedClock(Time()))
    results = limiter.acquire_each([[asks("alice", 3)] for _ in range(4)])
    rejected = [isinstance(result, RateLimitExceeded) for result in results]
    assert (sum(rejected), left(limiter)) == (1, 1)
    limiter.close()


def interrupted(call):
    """Whether this makes carol's bucket: by then, the known ones have been drawn from."""
    return call.operation == "PutItem" and "carol" in call.params["Item"]["PK"]["S"]


@pytest.mark.parametrize("error", [KeyboardInterrupt, ZeroDivisionError])
def test_an_interrupt_gives_back_what_all_groups_took(table, error):
    limiter = Sync.made(**table, clock=AgreedClock(Time()))
    limiter.acquire_each([[asks("alice")], [asks("bob")]])

    def wire(call, send):
        if interrupted(call):
            raise error
        return send(call)

    limiter.wire = wire
    # Bob's is part of a group that is still under way, alice's of one that is through.
    with pytest.raises(error):
        limiter.acquire_each([[asks("alice", 4)], [asks("bob", 4), asks("carol", 4)]])
    limiter.wire = None
    assert [left(limiter, name) for name in EACH] == [9, 9, 10]
    limiter.close()


def test_a_refusal_of_the_table_ends_one_group_and_not_the_others(table):
    limiter = Sync.made(**table, clock=AgreedClock(Time()))
    limiter.acquire_each([[asks("alice")]])
    refused = Refused(TableError("as the test wants it"))
    limiter.wire = lambda call, send: refused if interrupted(call) else send(call)
    alice, carol = limiter.acquire_each([[asks("alice", 4)], [asks("carol", 4)]])
    assert alice.consumed == {"rpm": 4}
    assert isinstance(carol, TableError)
    limiter.close()


@pytest.mark.parametrize("moment", ["alice", "carol"])
def test_a_cancelled_task_leaves_nothing_taken(table, moment):
    limiter = Async.made(**table, clock=AgreedClock(Time()))
    limiter.acquire_each([[asks("alice")], [asks("bob")]])
    driver, tasks = limiter.limiter._driver, []
    send = driver._send

    async def cancelling(client, call):
        key = call.params.get("Key") or call.params.get("Item") or {}
        if moment in str(key.get("PK")):
            tasks[0].cancel()
        return await send(client, call)

    async def cancelled():
        driver._send = cancelling
        groups = [[asks("alice", 4)], [asks("bob", 4), asks("carol", 4)]]
        tasks.append(asyncio.ensure_future(limiter.limiter.acquire_each(groups)))
        with pytest.raises(asyncio.CancelledError):
            await tasks[0]
        driver._send = send

    limiter.run(cancelled())
    assert [left(limiter, name) for name in EACH] == [9, 9, 10]
    limiter.close()
