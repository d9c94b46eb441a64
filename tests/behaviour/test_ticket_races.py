"""Tickets that several settle at once, buckets that move meanwhile, and answers that are lost."""

from __future__ import annotations

import asyncio
import json
from concurrent.futures import ThreadPoolExecutor

import pytest

from headgate import (
    Limit,
    RateLimiterUnavailable,
    RateLimitExceeded,
    Request,
    TicketSpent,
    ValidationError,
)
from headgate.effects import Conflicted, Throttled, Unreachable
from tests.behaviour.backends import BACKENDS, split
from tests.behaviour.tickets import BOTH, CHANGES, RPM, TPM, left, taken


@pytest.fixture
def limiter(backend):
    return backend.limiter(limits=[RPM, TPM])


@pytest.fixture
def other(backend):
    """A client that knows nothing of what the first one did."""
    return backend.limiter(limits=[RPM, TPM])


SYNC = [name for name in BACKENDS if not name.endswith("async")]
on_wires = pytest.mark.parametrize("backend", SYNC, indirect=True)


def meanwhile(limiter, action):
    """Does something between the first look at the table and the write."""
    pending = [action]

    def wire(call, send):
        if call.operation == "TransactWriteItems" and pending:
            pending.pop()()
        return send(call)

    limiter.wire = wire


@on_wires
def test_of_two_different_changes_one_wins(limiter, other):
    ticket = taken(limiter)
    won = []
    meanwhile(other, lambda: won.append(limiter.adjust(ticket, {"tpm": -40})))
    with pytest.raises(TicketSpent):
        other.release(ticket)
    assert won[0].done
    assert left(limiter) == {"rpm": 9, "tpm": 940}


@on_wires
@pytest.mark.parametrize("change", CHANGES)
def test_of_two_equal_changes_one_is_made(limiter, other, change):
    by, held = CHANGES[change]
    ticket = taken(limiter)
    won = []
    meanwhile(other, lambda: won.append(limiter.adjust(ticket, by)))
    late = other.adjust(ticket, by)
    assert (won[0].done, late.done) == (True, False)
    assert late.ticket == won[0].ticket
    assert late.ticket.consumed == held
    assert left(limiter)["tpm"] == 1_000 - held["tpm"]


@pytest.mark.parametrize("backend", ["ministack-sync"], indirect=True)
@pytest.mark.parametrize("change", CHANGES)
def test_of_many_at_once_one_makes_it(backend, limiter, change):
    by, held = CHANGES[change]
    patient = {"limits": [RPM, TPM], "read_timeout": 20.0, "connect_timeout": 5.0}
    clients = [backend.limiter(**patient) for _ in range(6)]
    for client in clients:
        client.available("alice", "gpt-4")
    ticket = taken(limiter)
    with ThreadPoolExecutor(len(clients)) as pool:
        settled = list(pool.map(lambda client: client.adjust(ticket, by), clients))
    assert [one.done for one in settled].count(True) in ((1,) if len(by) == 1 else (1, 2))
    assert {json.dumps(one.ticket.as_dict()) for one in settled} == {
        json.dumps(settled[0].ticket.as_dict())
    }
    assert left(limiter) == {"rpm": 10 - held.get("rpm", 0), "tpm": 1_000 - held["tpm"]}


@pytest.mark.parametrize("backend", ["ministack-async"], indirect=True)
def test_a_settlement_that_is_cancelled_can_be_made_again(limiter, other):
    ticket = taken(limiter)
    driver, tasks = other.limiter._driver, []
    send = driver._send

    async def cancelling(client, call):
        if call.operation == "TransactWriteItems":
            tasks[0].cancel()
        return await send(client, call)

    async def cancelled():
        driver._send = cancelling
        tasks.append(asyncio.ensure_future(other.limiter.release(ticket)))
        with pytest.raises(asyncio.CancelledError):
            await tasks[0]
        driver._send = send

    other.run(cancelled())
    again = other.release(ticket)
    assert (again.done, again.ticket.consumed) == (False, {})
    assert left(limiter) == {"rpm": 10, "tpm": 1_000}


@on_wires
@pytest.mark.parametrize("by", [{"tpm": 500}, {"tpm": -50}, {"rpm": 1, "tpm": -50}])
@pytest.mark.parametrize("what", ["draw", "split", "expire", "limits"])
def test_a_bucket_that_moves_meanwhile_is_looked_at_again(backend, limiter, other, by, what):
    ticket = taken(limiter)
    raised = [Limit.per_minute("rpm", 20), Limit.per_minute("tpm", 2_000)]
    actions = {
        "draw": lambda: taken(limiter, consume={"rpm": 8, "tpm": 800}),
        "split": lambda: split(limiter, 1),
        "expire": lambda: backend.expire("alice", "gpt-4"),
        "limits": lambda: limiter.set_limits(raised, entity_id="alice"),
    }
    meanwhile(other, actions[what])
    settled = other.adjust(ticket, by)
    assert settled.ticket.consumed == {name: BOTH[name] + by.get(name, 0) for name in BOTH}
    held = {"draw": {"rpm": 9, "tpm": 900}, "expire": {"rpm": 0, "tpm": 0}}.get(what, BOTH)
    top = {"rpm": 20, "tpm": 2_000} if what == "limits" else {"rpm": 10, "tpm": 1_000}
    expected = {n: min(top[n], top[n] - held[n] - by.get(n, 0)) for n in top}
    if what == "limits":  # what was held stays; a larger bucket fills up with time
        expected = {n: top[n] // 2 - held[n] - by.get(n, 0) for n in top}
    assert left(limiter) == expected


def losing(limiter, fates):
    """The fate of each transaction: "sent", "lost" on its way, or its "answer" lost."""
    pending = list(fates)

    def wire(call, send):
        fate = pending.pop(0) if call.operation == "TransactWriteItems" and pending else "sent"
        if fate == "lost":
            return Unreachable("as the test wants it")
        outcome = send(call)
        return outcome if fate == "sent" else Unreachable("as the test wants it")

    limiter.wire = wire


@on_wires
@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("fates", [["lost"], ["answer"], ["sent", "lost"], ["sent", "answer"]])
def test_a_change_whose_answer_was_lost_is_made_once(backend, limiter, change, fates):
    by, held = CHANGES[change]
    steps = len({amount > 0 for amount in by.values()})
    ticket = taken(limiter)
    unlucky = backend.limiter(limits=[RPM, TPM], attempts=1)
    losing(unlucky, fates)
    if len(fates) <= steps:
        with pytest.raises(RateLimiterUnavailable):
            unlucky.adjust(ticket, by)
        again = backend.limiter(limits=[RPM, TPM]).adjust(ticket, by)
        # What was left to do was done now.
        assert again.done == (fates[-1] == "lost" or len(fates) < steps)
    else:
        again = unlucky.adjust(ticket, by)
    assert again.ticket.consumed == held
    assert left(limiter) == {"rpm": 10 - held.get("rpm", 0), "tpm": 1_000 - held["tpm"]}
    assert unlucky.adjust(ticket, by).ticket == again.ticket
    assert left(limiter) == {"rpm": 10 - held.get("rpm", 0), "tpm": 1_000 - held["tpm"]}


@on_wires
def test_a_change_that_is_repeated_by_the_client_itself_is_made_once(limiter, other):
    ticket = taken(limiter)
    losing(other, ["answer"])
    assert other.release(ticket).ticket.consumed == {}
    assert left(limiter) == {"rpm": 10, "tpm": 1_000}


def busy(times, outcome):
    pending = [outcome] * times

    def wire(call, send):
        if call.operation == "TransactWriteItems" and pending:
            return pending.pop()
        return send(call)

    return wire


@pytest.mark.parametrize("backend", ["simulator"], indirect=True)  # where pauses pass at once
@pytest.mark.parametrize(
    "outcome", [Conflicted(), Throttled("hot", of_key=True)], ids=["conflict", "throttle"]
)
def test_a_busy_table_is_asked_again_and_then_it_is_contended(backend, outcome):
    quota = Limit.custom("tpm", capacity=1_000, refill_amount=0, refill_period=1)
    limiter, other = (backend.limiter(limits=[quota]) for _ in range(2))
    ticket = taken(limiter, consume={"tpm": 100})
    other.wire = busy(11, outcome)
    first = other.adjust(ticket, {"tpm": 5})
    assert first.done
    other.wire = busy(12, outcome)
    with pytest.raises(RateLimitExceeded) as caught:
        other.release(first.ticket)
    assert caught.value.contended
    assert left(limiter) == {"tpm": 895}
    assert other.release(first.ticket).done
    assert left(limiter) == {"tpm": 1_000}


@pytest.mark.parametrize("backend", ["simulator"], indirect=True)  # 128 shards are many requests
def test_more_than_a_transaction_takes_is_refused_before_anything_is_written(limiter, other):
    requests = [Request(name, "gpt-4", {"tpm": 100}) for name in ("alice", "bob")]
    with limiter.acquire_all(requests) as lease:
        pass
    for name in ("alice", "bob"):
        split(limiter, 6, name)
    ticket = lease.ticket()
    with other.sending() as sent, pytest.raises(ValidationError, match=r"at most 99 .* are 128"):
        other.adjust(ticket, {"tpm": 2_000})
    assert "TransactWriteItems" not in sent
    assert left(limiter)["tpm"] == 900
    assert other.adjust(ticket, {"tpm": 10}).done


def test_an_outage_is_told_whatever_the_policy(backend, limiter):
    ticket = taken(limiter)
    lenient = backend.limiter(limits=[RPM, TPM], on_unavailable="allow")
    lenient.cut()
    with pytest.raises(RateLimiterUnavailable):
        lenient.release(ticket)
    lenient.mend()
    assert lenient.release(ticket).done
