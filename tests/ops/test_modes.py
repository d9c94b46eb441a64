"""Disabled: nothing passes. Bypassed: everything does, and is counted."""

from __future__ import annotations

import pytest

from headgate import Limit, RateLimitExceeded, ValidationError

RPM = [Limit.per_minute("rpm", 10)]
LEVELS = {
    "entity and resource": {"entity_id": "alice", "resource": "gpt-4"},
    "entity": {"entity_id": "alice"},
    "resource": {"resource": "gpt-4"},
    "system": {},
}


@pytest.fixture
def operator(backend):
    limiter = backend.limiter()
    limiter.set_limits(RPM)
    return limiter


@pytest.fixture
def user(backend, operator):
    return backend.limiter(on_unavailable="allow")


def take(limiter, amount=1, **options):
    with limiter.acquire("alice", "gpt-4", {"rpm": amount}, **options) as lease:
        return lease


@pytest.mark.parametrize("level", LEVELS)
def test_a_client_that_has_the_bucket_in_use_is_rejected_at_once(operator, user, level):
    take(user)
    operator.set_mode("disabled", **LEVELS[level])
    with pytest.raises(RateLimitExceeded, match="disabled by an operator") as caught:
        take(user)
    assert caught.value.reason == "disabled"
    assert caught.value.retry_after is None
    assert caught.value.as_dict()["reason"] == "disabled"


@pytest.mark.parametrize("level", LEVELS)
def test_enabled_again_it_goes_on_with_the_balance_it_had(operator, user, time, level):
    take(user, 4)
    operator.set_mode("disabled", **LEVELS[level])
    with pytest.raises(RateLimitExceeded):
        take(user)
    operator.set_mode("normal", **LEVELS[level])
    time.advance(2)
    assert take(user, 6).consumed == {"rpm": 6}
    with pytest.raises(RateLimitExceeded) as caught:
        take(user, 6)
    assert caught.value.reason is None


def test_a_rejection_of_what_is_disabled_is_remembered(operator, user, time):
    operator.set_mode("disabled", entity_id="alice")
    with pytest.raises(RateLimitExceeded):
        take(user)
    with user.sending() as sent, pytest.raises(RateLimitExceeded) as caught:
        take(user)
    assert sent == []
    assert caught.value.remembered
    time.advance(1.5)
    with user.sending() as sent, pytest.raises(RateLimitExceeded):
        take(user)
    assert "UpdateItem" not in sent


def test_a_bucket_that_was_never_made_is_not_made_while_it_is_disabled(operator, user):
    operator.set_mode("disabled", resource="gpt-4")
    with user.sending() as sent, pytest.raises(RateLimitExceeded):
        take(user)
    assert "PutItem" not in sent


def test_limits_that_the_caller_brings_do_not_get_around_it(operator, user, time):
    mine = [Limit.per_minute("rpm", 1_000)]
    take(user, limits=mine)
    operator.set_mode("disabled", entity_id="alice")
    for _ in range(2):
        with pytest.raises(RateLimitExceeded, match="disabled"):
            take(user, limits=mine)
        time.advance(2)
    operator.set_mode("normal", entity_id="alice")
    assert take(user, 900, limits=mine).consumed == {"rpm": 900}


def test_disabled_is_stronger_than_bypass_at_any_level(operator, user):
    operator.set_mode("bypass", entity_id="alice")
    operator.set_mode("disabled", resource="gpt-4")
    with pytest.raises(RateLimitExceeded, match="disabled"):
        take(user)


@pytest.mark.parametrize("level", LEVELS)
def test_bypassed_all_is_admitted_and_counted(operator, user, level):
    take(user, 8)
    operator.set_mode("bypass", **LEVELS[level])
    for _ in range(3):
        take(user, 30)
    assert operator.available("alice", "gpt-4") == {"rpm": -88}
    operator.set_mode("normal", **LEVELS[level])
    with pytest.raises(RateLimitExceeded):
        take(user)


def test_a_bypassed_bucket_can_be_made_by_a_request_over_its_capacity(operator, user):
    operator.set_mode("bypass", resource="gpt-4")
    assert take(user, 500).consumed == {"rpm": 500}


def test_a_check_tells_the_mode(operator, user):
    operator.set_mode("disabled", entity_id="alice")
    result = operator.check("alice", "gpt-4", {"rpm": 1})
    assert (result.allowed, result.mode, result.retry_after) == (False, "disabled", None)
    operator.set_mode("bypass", entity_id="alice")
    result = operator.check("alice", "gpt-4", {"rpm": 100})
    assert (result.allowed, result.mode) == (True, "bypass")
    assert operator.resolve_limits("alice", "gpt-4").mode == "bypass"


def test_setting_and_deleting_limits_leaves_the_mode_alone(operator, user):
    operator.set_mode("disabled", entity_id="alice")
    operator.set_limits([Limit.per_minute("rpm", 99)], entity_id="alice")
    assert operator.get_limits(entity_id="alice").mode == "disabled"
    operator.delete_limits(entity_id="alice")
    assert operator.get_limits(entity_id="alice").mode == "disabled"
    with pytest.raises(RateLimitExceeded, match="disabled"):
        take(user)
    operator.set_mode("normal", entity_id="alice")
    assert operator.get_limits(entity_id="alice") is None


def test_what_was_taken_before_can_be_given_back_and_corrected(operator, user):
    with user.acquire("alice", "gpt-4", {"rpm": 5}) as lease:
        operator.set_mode("disabled", entity_id="alice")
        lease.adjust(rpm=2)
        lease.release(rpm=3)
    assert operator.available("alice", "gpt-4") == {"rpm": 6}


def test_a_disabled_parent_stops_its_children(operator, user):
    operator.create_entity("org")
    operator.create_entity("alice", parent_id="org", cascade=True)
    take(user)
    operator.set_mode("disabled", entity_id="org")
    with pytest.raises(RateLimitExceeded) as caught:
        take(user)
    assert caught.value.entity_id == "org"
    assert operator.available("alice", "gpt-4") == {"rpm": 9}


def test_a_mode_that_there_is_not_is_refused(operator):
    with pytest.raises(ValidationError, match="'off'"):
        operator.set_mode("off", entity_id="alice")
