"""Tickets: what a lease holds is settled later, by others, exactly once."""

from __future__ import annotations

from dataclasses import replace

import pytest

from headgate import (
    Limit,
    LimitsNotFound,
    RateLimitExceeded,
    Request,
    TicketExpired,
    TicketSpent,
    ValidationError,
    shards,
)
from headgate.reads import batch_get
from headgate.schema import BucketRef, key
from headgate.settle import ONCE, pk_ticket
from tests.behaviour.backends import NAMESPACE_ID, run_flow, split
from tests.behaviour.tickets import BOTH, CHANGES, RPM, TPM, left, taken, travelled


@pytest.fixture
def limiter(backend):
    return backend.limiter(limits=[RPM, TPM])


@pytest.fixture
def other(backend):
    """A client that knows nothing of what the first one did."""
    return backend.limiter(limits=[RPM, TPM])


def record(limiter, ticket):
    core = limiter.limiter._core
    place = pk_ticket(core.ns, ticket.id), ONCE
    return run_flow(limiter, batch_get(core, [key(*place)], strong=True)).get(place)


# ---------------------------------------------------------------- what it does


def test_a_ticket_says_what_the_lease_holds(limiter):
    with limiter.acquire("alice", "gpt-4", BOTH) as lease:
        lease.adjust(tpm=50)
        ticket = lease.ticket()
    assert ticket.consumed == lease.consumed == {"rpm": 1, "tpm": 150}
    assert ticket.namespace_id == NAMESPACE_ID
    assert travelled(ticket) == ticket
    assert lease.ticket().id != ticket.id


@pytest.mark.parametrize("change", CHANGES)
def test_adjust_corrects_what_was_taken_elsewhere(limiter, other, change):
    by, held = CHANGES[change]
    ticket = taken(limiter)
    settled = other.adjust(ticket, by)
    assert settled.done
    assert settled.ticket.consumed == held
    assert settled.ticket.expires == ticket.expires
    expected = {"rpm": 10 - held.get("rpm", 0), "tpm": 1_000 - held.get("tpm", 0)}
    assert left(limiter) == expected
    assert {status.name: status.available for status in settled.limits} == expected


@pytest.mark.parametrize("change", CHANGES)
def test_the_same_change_again_moves_nothing_and_says_the_same(backend, limiter, other, change):
    by, _ = CHANGES[change]
    ticket = taken(limiter)
    first = other.adjust(ticket, by)
    before = left(limiter)
    for client in (other, limiter, backend.limiter(limits=[RPM, TPM])):
        with client.sending() as sent:
            again = client.adjust(ticket, dict(reversed(by.items())))
        assert (again.done, again.ticket) == (False, first.ticket)
        assert [status.available for status in again.limits] == [*before.values()]
        assert "TransactWriteItems" not in sent
    assert left(limiter) == before


def test_release_gives_back_some_or_all(limiter, other):
    ticket = taken(limiter)
    some = other.release(ticket, {"tpm": 30})
    assert (some.done, some.ticket.consumed) == (True, {"rpm": 1, "tpm": 70})
    assert left(limiter) == {"rpm": 9, "tpm": 930}
    rest = other.release(some.ticket)
    assert (rest.done, rest.ticket.consumed, rest.ticket.grants) == (True, {}, ())
    assert left(limiter) == {"rpm": 10, "tpm": 1_000}
    for ticket_, amounts in ((ticket, {"tpm": 30}), (some.ticket, None)):
        assert not other.release(ticket_, amounts).done
    assert left(limiter) == {"rpm": 10, "tpm": 1_000}


def test_each_ticket_is_used_once_and_gives_the_next(limiter, other):
    ticket = taken(limiter)
    tickets = [ticket]
    for by in ({"tpm": 50}, {"tpm": 50}, {"tpm": -20, "rpm": 1}, {"tpm": -100}):
        ticket = travelled(other.adjust(ticket, by).ticket)
        tickets.append(ticket)
    assert len({one.id for one in tickets}) == 5
    assert ticket.consumed == {"rpm": 2, "tpm": 80}
    assert left(limiter) == {"rpm": 8, "tpm": 920}
    for old in tickets[:-1]:
        with pytest.raises(TicketSpent, match="was used before, to adjust"):
            other.release(old)
    assert limiter.release(ticket).done
    assert left(limiter) == {"rpm": 10, "tpm": 1_000}


def test_a_ticket_that_holds_nothing_any_more_can_still_take(limiter, other):
    empty = other.release(taken(limiter)).ticket
    assert other.adjust(empty, {"tpm": 40}).ticket.consumed == {"tpm": 40}
    assert left(limiter) == {"rpm": 10, "tpm": 960}


def test_nothing_to_change_is_no_use_of_the_ticket(limiter, other):
    ticket = taken(limiter)
    with other.sending() as sent:
        for nothing in ({}, {"tpm": 0}, {"tpm": 0, "rpm": 0}):
            settled = other.adjust(ticket, nothing)
            assert (settled.done, settled.ticket, settled.limits) == (True, ticket, ())
        empty = replace(ticket, grants=())
        assert other.release(empty).ticket == empty
    assert sent == []
    assert other.release(ticket).done


def test_a_change_may_take_of_limits_that_the_acquire_did_not_name(limiter, other):
    ticket = taken(limiter, consume={"rpm": 1})
    assert other.adjust(ticket, {"tpm": 5}).ticket.consumed == {"rpm": 1, "tpm": 5}
    assert left(limiter) == {"rpm": 9, "tpm": 995}


def test_a_release_is_admitted_at_once_by_the_client_that_made_it(limiter):
    ticket = taken(limiter, consume={"rpm": 10})
    with pytest.raises(RateLimitExceeded), limiter.acquire("alice", "gpt-4", {"rpm": 1}):
        pass
    limiter.release(ticket, {"rpm": 1})
    with limiter.acquire("alice", "gpt-4", {"rpm": 1}):
        pass


def test_adjust_of_an_idle_full_bucket_is_not_paid_from_what_overflowed(limiter, other, time):
    ticket = taken(limiter)
    time.advance(3_500)
    other.adjust(ticket, {"tpm": 300})
    assert left(limiter)["tpm"] == 700


def test_a_settlement_reads_and_writes_once(limiter, other):
    first, second = taken(limiter), taken(limiter)
    other.adjust(first, {"tpm": 1})
    with other.sending() as sent:
        other.adjust(second, {"tpm": 1})
    assert sorted(sent) == ["BatchGetItem", "TransactGetItems", "TransactWriteItems"]
    writes = other.calls[-1].params["TransactItems"]
    assert len(writes) == 2


# ---------------------------------------------------------------- what it refuses


def test_tickets_expire(limiter, other, time):
    ticket = taken(limiter, expires_in=60)
    time.advance(59.9)
    assert other.adjust(ticket, {"tpm": 1}).ticket.expires == ticket.expires
    time.advance(0.2)
    for attempt in (lambda: other.adjust(ticket, {"tpm": 1}), lambda: other.release(ticket)):
        with pytest.raises(TicketExpired):
            attempt()


@pytest.mark.parametrize("expires_in", [0, 0.9, -1, 604_801, True, "60", float("nan"), None])
def test_a_ticket_lasts_from_a_second_to_a_week(limiter, expires_in):
    with (
        limiter.acquire("alice", "gpt-4", BOTH) as lease,
        pytest.raises(ValidationError, match="expires_in"),
    ):
        lease.ticket(expires_in=expires_in)


def test_a_ticket_is_of_one_namespace(backend, limiter):
    ticket = taken(limiter)
    stranger = backend.limiter(limits=[RPM, TPM], namespace_id="elsewhere__")
    with pytest.raises(ValidationError, match="elsewhere__"):
        stranger.release(ticket)
    assert left(limiter) == {"rpm": 9, "tpm": 900}


@pytest.mark.parametrize(
    ("method", "amounts"),
    [
        ("adjust", {"tpm": -101}),
        ("adjust", {"tpm": -101, "rpm": 1}),
        ("adjust", {"tpm": 1.5}),
        ("adjust", {"tpm": True}),
        ("adjust", {"tpm": 10**13}),
        ("adjust", {"wcu": 1}),
        ("adjust", {1: 1}),
        ("adjust", {"tmp": -1}),
        ("adjust", [("tpm", 1)]),
        ("release", {"tpm": 101}),
        ("release", {"tpm": 0}),
        ("release", {"tpm": -1}),
        ("release", {"tmp": 1}),
        ("release", {}),
        ("release", 5),
    ],
)
def test_what_can_never_be_right_is_refused_and_nothing_is_sent(limiter, other, method, amounts):
    ticket = taken(limiter)
    with other.sending() as sent, pytest.raises(ValidationError):
        getattr(other, method)(ticket, amounts)
    assert sent == []
    assert other.release(ticket).done


def test_limits_that_no_bucket_has_are_refused_and_nothing_is_written(limiter, other):
    ticket = taken(limiter)
    with other.sending() as sent, pytest.raises(ValidationError, match=r"'tmp'.*rpm, tpm"):
        other.adjust(ticket, {"tmp": 5, "rpm": -1})
    assert "TransactWriteItems" not in sent
    assert other.release(ticket).done


@pytest.mark.parametrize("ticket", [None, {}, "ticket", 5])
def test_only_tickets_are_settled(limiter, ticket):
    for attempt in (lambda: limiter.adjust(ticket, {"tpm": 1}), lambda: limiter.release(ticket)):
        with pytest.raises(ValidationError, match="must be a Ticket"):
            attempt()


def test_a_lease_that_drew_nothing_has_no_ticket(backend):
    limiter = backend.limiter(limits=[RPM], on_unavailable="allow")
    limiter.cut()
    with (
        limiter.acquire("alice", "gpt-4", {"rpm": 1}) as lease,
        pytest.raises(ValidationError, match="degraded"),
    ):
        lease.ticket()


def test_limits_that_the_call_brought_have_no_ticket(limiter):
    brought = [Limit.per_minute("rpm", 5)]
    with (
        limiter.acquire("alice", "gpt-4", {"rpm": 1}, limits=brought) as lease,
        pytest.raises(ValidationError, match="stored limits"),
    ):
        lease.ticket()


# ---------------------------------------------------------------- several buckets


def test_a_change_falls_on_parents_as_the_draw_did(limiter, other):
    for name in ("acme", "umbrella"):
        limiter.create_entity(name)
    for name, parent in (("alice", "acme"), ("bob", "acme"), ("carol", "umbrella")):
        limiter.create_entity(name, parent_id=parent, cascade=True)
    everyone = ("alice", "bob", "carol", "acme", "umbrella")

    def rpm():
        return [left(limiter, name)["rpm"] for name in everyone]

    requests = [Request(name, "gpt-4", {"rpm": 2}) for name in everyone[:3]]
    with limiter.acquire_all(requests) as lease:
        pass
    ticket = travelled(lease.ticket())
    assert rpm() == [8, 8, 8, 6, 8]
    ticket = other.adjust(ticket, {"rpm": 1}).ticket
    assert rpm() == [7, 7, 7, 4, 7]
    ticket = other.release(ticket, {"rpm": 2}).ticket
    assert rpm() == [9, 9, 9, 8, 9]
    ticket = other.adjust(ticket, {"rpm": -1, "tpm": 4}).ticket
    assert rpm() == [10] * 5
    assert [left(limiter, name)["tpm"] for name in everyone] == [996, 996, 996, 992, 996]
    other.release(ticket)
    assert [left(limiter, name)["tpm"] for name in everyone] == [1_000] * 5


def test_parents_pay_only_for_the_limits_they_have(limiter, other):
    limiter.set_limits([Limit.per_minute("rpm", 100)], entity_id="acme")
    limiter.create_entity("acme")
    limiter.create_entity("alice", parent_id="acme", cascade=True)
    ticket = taken(limiter)
    assert other.adjust(ticket, {"rpm": 2, "tpm": 50}).ticket.consumed == {"rpm": 3, "tpm": 150}
    assert left(limiter, "acme") == {"rpm": 97}


def test_what_goes_back_comes_from_the_parts_that_hold_it(limiter, other):
    requests = [Request("alice", "gpt-4", {"rpm": 2}), Request("bob", "gpt-4", {"tpm": 50})]
    with limiter.acquire_all(requests) as lease:
        pass
    other.release(lease.ticket(), {"tpm": 20})
    assert left(limiter, "alice") == {"rpm": 8, "tpm": 1_000}
    assert left(limiter, "bob") == {"rpm": 10, "tpm": 970}


# ---------------------------------------------------------------- buckets that change meanwhile


def test_a_bucket_that_has_expired_is_made_again_for_what_is_taken(backend, limiter, other):
    ticket = taken(limiter)
    backend.expire("alice", "gpt-4")
    settled = other.adjust(ticket, {"tpm": 50})
    assert settled.ticket.consumed == {"rpm": 1, "tpm": 150}
    assert left(limiter) == {"rpm": 10, "tpm": 950}


def test_a_bucket_that_has_expired_is_full_and_gets_nothing_back(backend, limiter, other):
    ticket = taken(limiter)
    backend.expire("alice", "gpt-4")
    settled = other.release(ticket)
    assert (settled.done, settled.limits) == (True, ())
    assert not other.release(ticket).done
    assert left(limiter) == {"rpm": 10, "tpm": 1_000}


def test_a_bucket_that_has_expired_and_has_no_limits_takes_nothing(backend):
    limiter = backend.limiter()
    limiter.set_limits([RPM], resource="gpt-4")
    ticket = taken(limiter, consume={"rpm": 1})
    backend.expire("alice", "gpt-4")
    limiter.delete_limits(resource="gpt-4")
    with pytest.raises(LimitsNotFound):
        backend.limiter().adjust(ticket, {"rpm": 1})
    assert limiter.release(ticket).done


def test_shards_give_and_get_as_one(limiter, other):
    with limiter.acquire("alice", "gpt-4", BOTH):
        pass
    split(limiter, 2)
    ticket = taken(limiter, consume={"rpm": 8, "tpm": 800})
    assert left(limiter) == {"rpm": 1, "tpm": 100}
    more = other.adjust(ticket, {"rpm": 5, "tpm": -700})
    assert left(limiter) == {"rpm": -4, "tpm": 800}
    assert more.ticket.consumed == {"rpm": 13, "tpm": 100}
    assert {status.name: status.available for status in more.limits} == {"rpm": -4, "tpm": 800}
    other.release(more.ticket)
    assert left(limiter) == {"rpm": 9, "tpm": 900}


def test_a_bucket_that_was_split_since_gives_and_gets_too(limiter, other):
    ticket = taken(limiter, consume={"rpm": 2, "tpm": 200})
    split(limiter, 2)
    assert left(limiter) == {"rpm": 8, "tpm": 800}
    settled = other.adjust(ticket, {"rpm": 11, "tpm": -40})
    assert left(limiter) == {"rpm": -3, "tpm": 840}
    assert settled.ticket.consumed == {"rpm": 13, "tpm": 160}


def test_shards_that_were_merged_get_back_what_theirs_gave(limiter, other):
    with limiter.acquire("alice", "gpt-4", BOTH):
        pass
    split(limiter, 2)
    ticket = taken(limiter, consume={"rpm": 8, "tpm": 800})
    assert len(ticket.grants) > 1
    core = limiter.limiter._core
    ref = BucketRef(core.ns, "alice", "gpt-4")
    for _ in range(2):
        assert run_flow(limiter, shards.merge(core, ref))
    other.release(ticket)
    assert left(limiter) == {"rpm": 9, "tpm": 900}


def test_a_limit_that_is_gone_gets_nothing_back(backend):
    limiter = backend.limiter()
    limiter.set_limits([RPM, TPM], resource="gpt-4")
    ticket = taken(limiter)
    limiter.set_limits([RPM], resource="gpt-4")
    with limiter.acquire("bob", "gpt-4", {"rpm": 1}):
        pass
    other = backend.limiter()
    limiter.invalidate_cache()
    with limiter.acquire("alice", "gpt-4", {"rpm": 1}):
        pass
    first = other.adjust(ticket, {"tpm": -50})
    assert first.ticket.consumed == {"rpm": 1, "tpm": 50}
    assert left(limiter) == {"rpm": 8}


def test_a_change_is_known_though_its_limit_is_gone_since(backend):
    limiter = backend.limiter()
    limiter.set_limits([RPM, TPM], resource="gpt-4")
    ticket = taken(limiter)
    first = limiter.adjust(ticket, {"tpm": 50})
    limiter.set_limits([RPM], entity_id="alice", resource="gpt-4")
    again = backend.limiter().adjust(ticket, {"tpm": 50})
    assert (again.done, again.ticket) == (False, first.ticket)


def test_adjust_takes_though_an_operator_has_closed_the_entity(limiter, other):
    ticket = taken(limiter)
    limiter.set_mode("disabled", entity_id="alice")
    assert other.adjust(ticket, {"tpm": 50}).done
    assert left(limiter)["tpm"] == 850


# ---------------------------------------------------------------- what it leaves in the table


def test_the_record_is_of_the_namespace_and_expires_after_the_ticket(limiter):
    ticket = taken(limiter)
    assert record(limiter, ticket) is None
    limiter.adjust(ticket, {"rpm": 1, "tpm": -1})
    item = record(limiter, ticket)
    assert item["GSI4PK"]["S"] == NAMESPACE_ID
    assert item["GSI4SK"] == item["PK"]
    assert int(item["ttl"]["N"]) == ticket.expires + 3_600
    assert set(item) == {
        *("PK", "SK", "GSI4PK", "GSI4SK", "ttl"),
        *("meaning", "debited", "credited"),
    }


def test_records_go_with_their_namespace(backend):
    limiter = backend.limiter(limits=[RPM, TPM], namespace_id=None)
    made = limiter.register_namespace("brief")
    brief = backend.limiter(limits=[RPM, TPM], namespace_id=made.id)
    ticket = taken(brief)
    brief.release(ticket)
    limiter.delete_namespace("brief")
    assert limiter.purge_namespace(made.id).done
    assert record(brief, ticket) is None
