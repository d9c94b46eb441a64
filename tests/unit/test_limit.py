from __future__ import annotations

import pickle

import pytest

from headgate import Limit, ValidationError
from headgate.bucket import Rate
from headgate.limit import MAX_LIMITS, RESERVED_NAMES, LimitSet, as_amounts


@pytest.mark.parametrize(
    ("make", "period"),
    [
        (Limit.per_second, 1),
        (Limit.per_minute, 60),
        (Limit.per_hour, 3_600),
        (Limit.per_day, 86_400),
    ],
)
def test_an_amount_in_a_period_may_be_taken_at_once_unless_a_burst_is_given(make, period):
    assert make("rpm", 10) == Limit("rpm", 10, 10, period)
    assert make("rpm", 10, burst=25) == Limit("rpm", 25, 10, period)
    assert make("rpm", 10, 3) == Limit("rpm", 3, 10, period)


def test_custom_is_any_bucket():
    limit = Limit.custom("rpm", capacity=7, refill_amount=2, refill_period=5)
    assert limit == Limit("rpm", 7, 2, 5)
    assert limit.rate == Rate(7_000, 2_000, 5_000)


def test_a_refill_of_nothing_makes_a_quota():
    assert Limit.custom("rpm", capacity=7, refill_amount=0, refill_period=1).rate.ra == 0


BAD_NUMBERS = [0, -1, 1.0, 0.5, True, "10", None, 10**12 + 1, float("inf")]


@pytest.mark.parametrize("value", BAD_NUMBERS)
@pytest.mark.parametrize("field", ["capacity", "refill_amount", "refill_period"])
def test_every_number_of_a_limit_is_checked_and_shown(field, value):
    given = {"capacity": 5, "refill_amount": 5, "refill_period": 60, field: value}
    if field == "refill_amount" and value == 0 and value is not False:
        return
    with pytest.raises(ValidationError) as caught:
        Limit.custom("rpm", **given)
    assert field in str(caught.value)
    assert "'rpm'" in str(caught.value)
    assert repr(value) in str(caught.value)


def test_a_refill_may_be_nothing_but_not_less():
    with pytest.raises(ValidationError, match="refill_amount"):
        Limit.custom("rpm", capacity=1, refill_amount=-1, refill_period=1)


def test_a_burst_of_nothing_is_refused_and_not_taken_for_none():
    with pytest.raises(ValidationError, match="capacity"):
        Limit.per_minute("rpm", 10, burst=0)


@pytest.mark.parametrize(
    "name", ["", "1rpm", "_rpm", "r-pm", "r pm", "r.pm", "rpm#", "é", "x" * 33, "rpm\n", None, 7]
)
def test_a_name_that_cannot_be_part_of_an_attribute_is_refused_and_shown(name):
    with pytest.raises(ValidationError) as caught:
        Limit.per_minute(name, 10)
    assert repr(name) in str(caught.value)


@pytest.mark.parametrize("name", ["r", "rpm", "RPM", "tokens_per_minute", "a1", "x" * 32])
def test_a_letter_and_then_letters_digits_and_underscores_make_a_name(name):
    assert Limit.per_minute(name, 10).name == name


@pytest.mark.parametrize("name", sorted(RESERVED_NAMES))
def test_reserved_names_are_refused_in_any_case(name):
    for spelled in (name, name.upper(), name.title()):
        with pytest.raises(ValidationError, match="reserved"):
            Limit.per_minute(spelled, 10)


def test_a_limit_does_not_change():
    with pytest.raises(AttributeError):
        Limit.per_minute("rpm", 10).capacity = 20
    limit = Limit.per_minute("rpm", 10)
    assert pickle.loads(pickle.dumps(limit)) == limit  # noqa: S301 - our own bytes
    assert len({limit, Limit.per_minute("rpm", 10)}) == 1


def test_a_set_is_the_same_in_any_order():
    rpm, tpm = Limit.per_minute("rpm", 10), Limit.per_minute("tpm", 1000)
    one, other = LimitSet([rpm, tpm]), LimitSet([tpm, rpm])
    assert one == other
    assert hash(one) == hash(other)
    assert one.names == ("rpm", "tpm")
    assert one.fingerprint == other.fingerprint
    assert one != LimitSet([rpm])
    assert "rpm" in repr(one)


@pytest.mark.parametrize(
    "limits",
    [[], [Limit.per_minute(f"l{i}", 1) for i in range(MAX_LIMITS + 1)]],
    ids=["none", "too many"],
)
def test_a_set_has_from_one_to_sixteen_limits(limits):
    with pytest.raises(ValidationError, match=f"{len(limits)} given"):
        LimitSet(limits)


def test_two_limits_of_one_name_are_refused():
    with pytest.raises(ValidationError, match="rpm"):
        LimitSet([Limit.per_minute("rpm", 1), Limit.per_hour("rpm", 1)])


def test_what_is_no_limit_is_refused_and_shown():
    with pytest.raises(ValidationError, match="'rpm'"):
        LimitSet(["rpm"])


@pytest.mark.parametrize(
    "change",
    [
        {"name": "rpn"},
        {"capacity": 11},
        {"refill_amount": 11},
        {"refill_period": 61},
    ],
)
def test_any_difference_shows_in_the_fingerprint(change):
    plain = {"name": "rpm", "capacity": 10, "refill_amount": 10, "refill_period": 60}
    one, other = LimitSet([Limit(**plain)]), LimitSet([Limit(**plain | change)])
    assert one.fingerprint != other.fingerprint


def test_amounts_come_in_the_sets_order_and_unknown_names_are_shown():
    limits = LimitSet([Limit.per_minute("tpm", 10), Limit.per_minute("rpm", 10)])
    assert limits.amounts({"tpm": 5_000}) == (0, 5_000)
    with pytest.raises(ValidationError, match=r"'tmp'.*rpm, tpm"):
        limits.amounts({"tmp": 1_000})


def test_amounts_become_millitokens():
    assert as_amounts("consume", {"rpm": 3}) == {"rpm": 3_000}


@pytest.mark.parametrize("amount", [0, -1, 1.0, 0.0123, True, "1", None, 10**12 + 1])
def test_an_amount_that_is_no_positive_whole_number_is_refused_and_shown(amount):
    with pytest.raises(ValidationError) as caught:
        as_amounts("consume", {"rpm": amount})
    assert repr(amount) in str(caught.value)
    assert "'rpm'" in str(caught.value)
