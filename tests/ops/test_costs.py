"""Operations by name: what they take is configuration."""

from __future__ import annotations

import pytest

from headgate import Limit, RateLimitExceeded, Request, ValidationError

LIMITS = [Limit.per_hour("rpm", 60), Limit.per_hour("units", 1_000)]
COSTS = {"export": {"rpm": 1, "units": 100}, "read": {"rpm": 1}}


@pytest.fixture
def limiter(backend):
    made = backend.limiter()
    made.set_limits(LIMITS)
    made.set_costs(COSTS, resource="reports")
    return made


@pytest.fixture
def user(backend, limiter):
    return backend.limiter(on_unavailable="allow")


def test_an_operation_takes_what_the_configuration_says(user):
    with user.acquire("acme", "reports", "export") as lease:
        assert lease.consumed == {"rpm": 1, "units": 100}
    assert user.check("acme", "reports", "export").allowed
    assert user.available("acme", "reports") == {"rpm": 59, "units": 900}


def test_a_known_operation_costs_no_more_requests_than_amounts_do(user):
    with user.acquire("acme", "reports", "export"):
        pass
    with user.sending() as sent, user.acquire("acme", "reports", "read"):
        pass
    assert sent == ["UpdateItem"]


def test_operations_and_amounts_can_be_asked_for_together(user):
    wanted = [Request("acme", "reports", "export"), Request("acme", "other", {"rpm": 2})]
    with user.acquire_all(wanted) as lease:
        assert lease.consumed == {"rpm": 1, "units": 100}
    assert user.available("acme", "other")["rpm"] == 58


def test_a_decorator_may_choose_the_operation(user):
    work = user.decorated(lambda kind: kind.upper(), "acme", "reports", lambda kind: kind)
    assert work("export") == "EXPORT"
    assert user.available("acme", "reports") == {"rpm": 59, "units": 900}


def test_an_operation_that_is_not_there_lists_those_that_are(user):
    for ask in (user.check, user.time_until_available):
        with pytest.raises(ValidationError, match=r"no operation 'exprot'.*are export, read"):
            ask("acme", "reports", "exprot")
    with (
        pytest.raises(ValidationError, match="'exprot'"),
        user.acquire("acme", "reports", "exprot"),
    ):
        pass


def test_an_operation_that_was_just_added_is_found(limiter, user):
    with user.acquire("acme", "reports", "read"):
        pass
    limiter.set_costs({**COSTS, "scan": {"units": 7}}, resource="reports")
    with user.acquire("acme", "reports", "scan") as lease:
        assert lease.consumed == {"units": 7}


def test_changed_costs_are_known_when_the_cache_is_old(limiter, user, time):
    with user.acquire("acme", "reports", "export"):
        pass
    limiter.set_costs({"export": {"units": 1}}, resource="reports")
    time.advance(61)
    with user.acquire("acme", "reports", "export") as lease:
        assert lease.consumed == {"units": 1}


def test_setting_limits_leaves_costs_alone_and_the_other_way_round(limiter):
    limiter.set_limits(LIMITS, resource="reports")
    assert limiter.get_limits(resource="reports").costs == COSTS
    limiter.set_costs({}, resource="reports")
    assert [limit.name for limit in limiter.get_limits(resource="reports").limits] == [
        "rpm",
        "units",
    ]


def test_in_an_outage_an_operation_is_let_pass_and_adjusted_without_effect(user):
    user.cut()
    with user.acquire("acme", "reports", "export") as lease:
        assert lease.degraded
        assert lease.adjust(units=5) is False


def test_a_short_operation_is_rejected_with_its_amounts(user):
    for _ in range(10):
        with user.acquire("acme", "reports", "export"):
            pass
    with pytest.raises(RateLimitExceeded, match="units has 0 of 1000 and 100 were asked"):
        user.acquire("acme", "reports", "export").__enter__()


@pytest.mark.parametrize(
    "costs",
    [{"": {"rpm": 1}}, {"a b": {"rpm": 1}}, {"x": {}}, {"x": {"rpm": 0}}, {"x": {"rpm": 0.5}}, [1]],
)
def test_costs_that_can_never_be_right_are_refused(limiter, costs):
    with pytest.raises(ValidationError):
        limiter.set_costs(costs, resource="reports")


def test_a_number_is_so_much_of_every_limit(user):
    with user.acquire("acme", "reports", 2) as lease:
        assert lease.consumed == {"rpm": 2, "units": 2}
    assert user.available("acme", "reports") == {"rpm": 58, "units": 998}
    assert user.check("acme", "reports", 58).allowed
    assert not user.check("acme", "reports", 59).allowed


def test_a_number_costs_no_more_requests_than_amounts_do(user):
    with user.acquire("acme", "reports", 1):
        pass
    with user.sending() as sent, user.acquire("acme", "reports", 1):
        pass
    assert sent == ["UpdateItem"]


def test_a_number_follows_limits_that_were_changed_by_others(backend, limiter, user):
    with user.acquire("acme", "reports", 1):
        pass
    limiter.set_limits([Limit.per_hour("calls", 10)], entity_id="acme", resource="reports")
    with user.acquire("acme", "reports", 1) as lease:
        assert lease.consumed == {"calls": 1}
    assert user.available("acme", "reports") == {"calls": 9}


def test_a_number_goes_by_the_limits_of_the_call(user):
    given = [Limit.per_hour("own", 5)]
    with user.acquire("acme", "mine", 5, limits=given) as lease:
        assert lease.consumed == {"own": 5}


def test_a_number_that_passes_in_an_outage_holds_nothing(user):
    user.cut()
    with user.acquire("acme", "reports", 1) as lease:
        assert lease.degraded
        assert lease.consumed == {}


@pytest.mark.parametrize("wrong", [0, -1, True, 10**13, 1.5])
def test_a_number_that_cannot_be_right_is_shown(user, wrong):
    with pytest.raises(ValidationError, match=repr(wrong)), user.acquire("acme", "reports", wrong):
        pass
    assert user.available("acme", "reports") == {"rpm": 60, "units": 1_000}
