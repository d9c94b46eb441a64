from __future__ import annotations

import copy
import json
import pickle

import pytest

import headgate
from headgate import (
    Blocked,
    HeadgateError,
    LimitStatus,
    RateLimiterUnavailable,
    RateLimitExceeded,
    TableError,
    ValidationError,
)


def status(name, *, available, requested, short, retry_after):
    return LimitStatus(
        name=name,
        capacity=10,
        available=available,
        requested=requested,
        short=short,
        retry_after=retry_after,
        refill_amount=10,
        refill_period=60,
        full_after=30.0,
    )


FINE = status("rpm", available=9, requested=1, short=False, retry_after=0.0)
SHORT = status("tpm", available=2, requested=5, short=True, retry_after=18.0)


def exceeded(**options):
    given = {"retry_after": 18.0} | options
    return RateLimitExceeded("alice", "gpt-4", (FINE, SHORT), **given)


def test_a_rejection_says_who_what_how_much_and_when():
    assert str(exceeded()) == (
        "limit exceeded for 'alice' on 'gpt-4': tpm has 2 of 10 and 5 were asked for; "
        "retry after 18.0 s"
    )


def test_a_rejection_for_good_says_so():
    assert str(exceeded(retry_after=None)).endswith("; waiting will not help")


def test_a_rejection_for_contention_says_so():
    error = RateLimitExceeded("alice", "gpt-4", (), retry_after=0.1, contended=True)
    assert "too many requests at once" in str(error)
    assert error.violations == ()
    assert error.headers() == {"Retry-After": "1"}


def test_a_rejection_is_plain_data_for_a_json_answer():
    data = json.loads(json.dumps(exceeded().as_dict()))
    assert data == {
        "error": "rate_limit_exceeded",
        "entity_id": "alice",
        "resource": "gpt-4",
        "retry_after": 18.0,
        "contended": False,
        "blocked": [{"entity_id": "alice", "resource": "gpt-4", "limit": "tpm"}],
        "limits": [FINE.as_dict(), SHORT.as_dict()],
    }
    assert data["limits"][1]["short"] is True
    assert set(data["limits"][1]) == {
        "name",
        "capacity",
        "available",
        "requested",
        "short",
        "retry_after",
        "refill_amount",
        "refill_period",
        "full_after",
    }


SLOWER = status("tpd", available=9, requested=10, short=True, retry_after=900.0)
NEVER = status("tph", available=9, requested=11, short=True, retry_after=None)


@pytest.mark.parametrize(
    ("limits", "options", "limit"),
    [
        ((FINE, SHORT), {}, "tpm"),
        ((SHORT, SLOWER), {}, "tpd"),
        ((NEVER, SHORT, SLOWER), {"retry_after": None}, "tph"),
        ((FINE, SHORT), {"retry_after": None, "reason": "disabled"}, None),
        ((), {"retry_after": 0.1, "contended": True}, None),
    ],
)
def test_a_rejection_names_the_limit_that_takes_longest(limits, options, limit):
    error = RateLimitExceeded("alice", "gpt-4", limits, **{"retry_after": 1.0, **options})
    assert error.blocked == (Blocked("alice", "gpt-4", limit),)
    assert copy.copy(error).blocked == error.blocked


def test_a_rejection_knows_which_limits_were_short():
    assert exceeded().violations == (SHORT,)
    assert not exceeded().contended
    assert not exceeded().remembered


def test_a_rejection_makes_the_headers_of_its_answer():
    headers = exceeded(retry_after=17.2).headers()
    assert headers["Retry-After"] == "18"
    assert headers["RateLimit"] == '"rpm";r=9;t=30, "tpm";r=2;t=30'
    assert headers["X-RateLimit-Remaining"] == "2"


def test_an_outage_says_why():
    error = RateLimiterUnavailable("ConnectTimeoutError")
    assert error.reason == "ConnectTimeoutError"
    assert "did not answer: ConnectTimeoutError" in str(error)
    assert not error.throttled
    assert "too much to do" in str(RateLimiterUnavailable("hot", throttled=True))


def test_every_error_is_of_the_one_tree():
    errors = [
        value
        for name in headgate.__all__
        if isinstance(value := getattr(headgate, name), type) and issubclass(value, Exception)
    ]
    assert len(errors) >= 9
    assert all(issubclass(error, HeadgateError) for error in errors)
    assert issubclass(ValidationError, ValueError)
    assert issubclass(headgate.LimitsNotFound, ValidationError)
    for error in (headgate.TableNotFound, headgate.AccessDenied, headgate.ClockSkewed):
        assert issubclass(error, TableError)
    assert not issubclass(RateLimiterUnavailable, TableError)


def test_the_tree_is_drawn_at_the_top_of_its_module():
    from headgate import errors

    for name, value in vars(errors).items():
        if isinstance(value, type) and issubclass(value, Exception):
            assert name in errors.__doc__, f"{name} is missing in the drawing"


@pytest.mark.parametrize(
    "error",
    [
        exceeded(),
        exceeded(retry_after=None, remembered=True),
        RateLimitExceeded("alice", "gpt-4", (), retry_after=0.1, contended=True),
        RateLimiterUnavailable("ConnectTimeoutError"),
        RateLimiterUnavailable("hot", throttled=True),
        ValidationError("what was given"),
    ],
)
def test_an_error_comes_through_from_another_process(error):
    # Pools of processes send exceptions as pickles.
    back = pickle.loads(pickle.dumps(error))  # noqa: S301 - our own bytes
    assert type(back) is type(error)
    assert str(back) == str(error)
    assert vars(back) == vars(error)
    assert str(copy.copy(error)) == str(error)


def test_a_rejection_can_be_raised_and_caught_by_its_root():
    with pytest.raises(HeadgateError):
        raise exceeded()
