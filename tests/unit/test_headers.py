"""The headers, read back as a client would read them."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate import LimitStatus
from headgate.bucket import Balance, build_limit_status
from headgate.headers import most_restrictive, rate_limit_headers
from tests import strategies as some


def status(name="rpm", **changes):
    plain = {
        "capacity": 10,
        "available": 4,
        "requested": 1,
        "short": False,
        "retry_after": 0.0,
        "refill_amount": 10,
        "refill_period": 60,
        "full_after": 36.0,
    }
    return LimitStatus(name=name, **plain | changes)


# RFC 9651: a list of strings with parameters, all of which are integers of up to 15 digits.
_MEMBER = re.compile(r'"((?:[ !#-\[\]-~]|\\["\\])*)"((?:; *[a-z*][a-z0-9_.*-]*=-?\d{1,15})*)')


def parsed(field):
    """The members of a structured field, or a failure if it is none."""
    members, rest = {}, field
    while True:
        match = _MEMBER.match(rest)
        assert match, f"not a structured field: {field!r} at {rest!r}"
        pairs = [pair.split("=") for pair in match[2].replace(" ", "").split(";")[1:]]
        members[match[1]] = {name: int(value) for name, value in pairs}
        rest = rest[match.end() :]
        if not rest:
            return members
        assert re.match(r"[ \t]*,[ \t]*", rest), f"not a structured field: {field!r}"
        rest = re.sub(r"^[ \t]*,[ \t]*", "", rest)


def test_one_member_for_each_limit_in_both_fields():
    limits = (status("rpm"), status("tpm", capacity=1000, available=0, full_after=59.2))
    headers = rate_limit_headers(limits, now=1_000_000)
    assert parsed(headers["RateLimit-Policy"]) == {
        "rpm": {"q": 10, "w": 60},
        "tpm": {"q": 1000, "w": 6000},
    }
    assert parsed(headers["RateLimit"]) == {
        "rpm": {"r": 4, "t": 36},
        "tpm": {"r": 0, "t": 60},
    }
    assert headers["RateLimit"] == '"rpm";r=4;t=36, "tpm";r=0;t=60'


def test_a_debt_shows_as_nothing_left():
    headers = rate_limit_headers((status(available=-500),))
    assert parsed(headers["RateLimit"])["rpm"]["r"] == 0
    assert headers["X-RateLimit-Remaining"] == "0"


def test_a_quota_has_no_window_and_no_reset():
    quota = status(refill_amount=0, full_after=None, retry_after=None, short=True)
    headers = rate_limit_headers((quota,), rejected=True)
    assert headers["RateLimit-Policy"] == '"rpm";q=10'
    assert headers["RateLimit"] == '"rpm";r=4'
    assert "X-RateLimit-Reset" not in headers
    assert "Retry-After" not in headers


@pytest.mark.parametrize(
    ("wait", "shown"), [(0.001, "1"), (1.0, "1"), (1.001, "2"), (59.5, "60"), (0.0, "1")]
)
def test_retry_after_is_in_whole_seconds_rounded_up(wait, shown):
    headers = rate_limit_headers((status(),), retry_after=wait, rejected=True)
    assert headers["Retry-After"] == shown


def test_retry_after_is_for_rejections_only():
    assert "Retry-After" not in rate_limit_headers((status(),), retry_after=5.0)


def test_a_rejection_without_limits_still_says_when_to_come_back():
    assert rate_limit_headers((), retry_after=0.1, rejected=True) == {"Retry-After": "1"}
    assert rate_limit_headers(()) == {}


def test_the_trio_is_of_the_limit_that_decides():
    short = status("tpm", capacity=1000, available=900, short=True, retry_after=5.0, full_after=6.5)
    headers = rate_limit_headers((status(available=1), short), now=1_000_000.2)
    assert headers["X-RateLimit-Limit"] == "1000"
    assert headers["X-RateLimit-Remaining"] == "900"
    assert headers["X-RateLimit-Reset"] == "1000007"


def test_the_limit_that_decides_is_the_short_one_that_takes_longest():
    never = status("never", short=True, retry_after=None)
    long, soon = (status(str(w), short=True, retry_after=w) for w in (60.0, 5.0))
    empty, half = status("empty", available=0), status("half", available=5)
    assert most_restrictive([half, soon, empty, never, long]) is never
    assert most_restrictive([half, soon, empty, long]) is long
    assert most_restrictive([half, empty]) is empty


def test_numbers_too_large_for_a_structured_field_are_cut():
    slow = status(capacity=10**12, refill_amount=1, refill_period=31_622_400, full_after=3e22)
    headers = rate_limit_headers((slow,))
    most = 999_999_999_999_999
    assert parsed(headers["RateLimit-Policy"])["rpm"] == {"q": 10**12, "w": most}
    assert parsed(headers["RateLimit"])["rpm"] == {"r": 4, "t": most}


@given(st.lists(some.limits, min_size=1, max_size=4, unique_by=lambda x: x.name), st.data())
def test_every_status_makes_fields_that_parse(limits, data):
    now = data.draw(some.times)
    found = []
    for limit in limits:
        balance: Balance = data.draw(some.balances(st.just(limit.rate), now=now))
        found.append(build_limit_status(limit.name, balance, data.draw(some.amounts), now))
    headers = rate_limit_headers(found, retry_after=data.draw(st.floats(0, 1e9)), rejected=True)
    policies, standings = parsed(headers["RateLimit-Policy"]), parsed(headers["RateLimit"])
    assert list(policies) == list(standings) == [limit.name for limit in limits]
    assert all(p["q"] > 0 and p.get("w", 1) > 0 for p in policies.values())
    assert all(s["r"] >= 0 and s.get("t", 0) >= 0 for s in standings.values())
    assert re.fullmatch(r"\d+", headers["Retry-After"])
    assert all(re.fullmatch(r"[!-~][ -~]*", value) for value in headers.values())
