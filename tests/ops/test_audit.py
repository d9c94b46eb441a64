"""Every change leaves an event, with who made it, and none is left without its change."""

from __future__ import annotations

import pytest

from headgate import EntityExists, Limit, ValidationError
from headgate.effects import Answer, Unreachable

RPM = [Limit.per_minute("rpm", 10)]


def backend_ignores_tokens(limiter):
    """moto carries a repeated transaction out again."""
    return limiter.limiter._core.table == "behaviours"


def events(limiter, **where):
    return list(reversed(limiter.get_audit_events(**where).events))


def told(limiter, **where):
    return [event.action for event in events(limiter, **where)]


def test_every_kind_of_change_is_filed_where_one_looks_for_it(backend):
    limiter = backend.limiter()
    limiter.set_limits(RPM)
    limiter.set_limits(RPM, resource="gpt-4")
    limiter.set_costs({"chat": {"rpm": 1}}, resource="gpt-4")
    limiter.set_mode("bypass", resource="gpt-4")
    limiter.create_entity("org")
    limiter.create_entity("alice", parent_id="org")
    limiter.update_entity("alice", name="Alice")
    limiter.set_limits(RPM, entity_id="alice", resource="gpt-4")
    limiter.delete_limits(entity_id="alice", resource="gpt-4")
    limiter.reset("alice", "gpt-4")
    limiter.delete_entity("alice")
    limiter.require_client("0.1")
    assert told(limiter) == ["limits_set", "version_set"]
    assert told(limiter, resource="gpt-4") == ["limits_set", "costs_set", "mode_set"]
    assert told(limiter, entity_id="org") == ["entity_created"]
    assert told(limiter, entity_id="alice") == [
        "entity_created",
        "entity_updated",
        "limits_set",
        "limits_deleted",
        "bucket_reset",
        "entity_deleted",
    ]


def test_an_event_says_what_was_and_what_is(backend):
    limiter = backend.limiter(principal="ops@example.com")
    limiter.set_limits(RPM, entity_id="alice", resource="gpt-4")
    limiter.set_limits([Limit.per_hour("rpm", 5)], entity_id="alice", resource="gpt-4")
    first, second = events(limiter, entity_id="alice")
    was = {"rpm": {"capacity": 10, "refill_amount": 10, "refill_period": 60}}
    assert (first.before, first.after) == (None, {"limits": was})
    assert second.before == {"limits": was}
    assert second.after["limits"]["rpm"]["capacity"] == 5
    assert (second.principal, second.resource) == ("ops@example.com", "gpt-4")


def test_a_namespaces_life_is_filed_in_the_registry(backend):
    limiter = backend.limiter(namespace_id=None)
    made = limiter.register_namespace("team-a")
    limiter.namespace("team-a")
    limiter.delete_namespace("team-a")
    limiter.recover_namespace(made.id)
    limiter.delete_namespace("team-a")
    limiter.purge_namespace(made.id)
    assert told(limiter, namespace="team-a") == [
        "namespace_registered",
        "namespace_deleted",
        "namespace_recovered",
        "namespace_deleted",
        "namespace_purge_begun",
        "namespace_purged",
    ]


def test_what_is_being_purged_cannot_be_recovered(backend):
    limiter = backend.limiter(namespace_id=None)
    made = limiter.register_namespace("team-a")
    limiter.delete_namespace("team-a")
    assert not limiter.purge_namespace(made.id, limit=1).done
    with pytest.raises(ValidationError, match="being purged"):
        limiter.recover_namespace(made.id)


def test_a_change_that_fails_leaves_no_event(backend):
    limiter = backend.limiter()
    limiter.create_entity("alice")
    with pytest.raises(EntityExists):
        limiter.create_entity("alice")
    assert limiter.delete_limits(entity_id="alice") is False
    assert told(limiter, entity_id="alice") == ["entity_created"]


def test_the_principal_may_be_asked_for_at_each_change(backend):
    people = iter(["ann", "bob"])
    limiter = backend.limiter(principal=lambda: next(people))
    limiter.create_entity("alice")
    limiter.delete_entity("alice")
    assert [event.principal for event in events(limiter, entity_id="alice")] == ["ann", "bob"]


def test_without_a_principal_the_credentials_say_who_it_was(backend):
    limiter = backend.limiter()
    limiter.create_entity("alice")
    (event,) = events(limiter, entity_id="alice")
    assert event.principal.startswith("arn:aws:")


def test_whom_nobody_knows_is_unknown_and_changes_all_the_same(backend):
    limiter = backend.limiter()
    driver = limiter.limiter._driver
    asked = []

    def silent(call):
        asked.append(call.operation)
        return Unreachable("no answer")

    async def silent_too(call):
        return silent(call)

    if not hasattr(driver, "_ask"):
        pytest.skip("this driver asks nobody")
    driver._ask = silent_too if hasattr(limiter, "run") else silent
    if "Simulated" in type(driver).__name__:
        send = driver._send
        driver._send = lambda call: silent(call) if call.service == "sts" else send(call)
    limiter.create_entity("alice")
    limiter.create_entity("bob")
    assert [event.principal for event in events(limiter, entity_id="alice")] == ["unknown"]
    assert asked == ["GetCallerIdentity"]


def test_an_entity_that_is_called_like_the_system_is_filed_apart(backend):
    limiter = backend.limiter()
    limiter.set_limits(RPM)
    for name in ("$SYSTEM", "$RESOURCE:gpt-4", "$$SYSTEM"):
        limiter.create_entity(name)
        assert told(limiter, entity_id=name) == ["entity_created"]
    assert told(limiter) == ["limits_set"]
    assert told(limiter, resource="gpt-4") == []


def test_events_expire_when_they_were_kept_long_enough(backend, time):
    limiter = backend.limiter(audit_days=7)
    limiter.create_entity("alice")
    (call,) = [c for c in limiter.calls if c.operation == "TransactWriteItems"]
    put = call.params["TransactItems"][-1]["Put"]["Item"]
    assert put["SK"]["S"].startswith("#AUDIT#")
    assert int(put["ttl"]["N"]) == time() // 1000 + 7 * 86_400


def test_an_answer_that_was_lost_repeats_the_change_and_its_event_once(backend):
    limiter = backend.limiter(attempts=2)
    if not hasattr(limiter, "wire") or backend_ignores_tokens(limiter):
        pytest.skip("its requests cannot be lost one by one")
    lost = []

    def wire(call, send):
        outcome = send(call)
        if call.operation == "TransactWriteItems" and not lost:
            assert isinstance(outcome, Answer)
            lost.append(call)
            return Unreachable("the answer was lost")
        return outcome

    limiter.wire = wire
    limiter.create_entity("alice")
    assert lost
    assert told(limiter, entity_id="alice") == ["entity_created"]
