from __future__ import annotations

from headgate import BreakerState
from headgate.breaker import Breaker

CLOSED, HALF_OPEN, OPEN = BreakerState.CLOSED, BreakerState.HALF_OPEN, BreakerState.OPEN
NOW = 1_800_000_000_000


def opened(now=NOW, **options):
    breaker = Breaker(**options)
    for _ in range(5):
        breaker.failed(now)
    assert breaker.state is OPEN
    return breaker


def test_it_starts_closed_and_lets_all_through():
    breaker = Breaker()
    assert breaker.state is CLOSED
    assert all(breaker.allows(NOW) for _ in range(100))


def test_five_failures_in_a_row_open_it():
    breaker = Breaker()
    for count in range(1, 6):
        assert breaker.state is CLOSED
        breaker.failed(NOW)
        assert (breaker.state is OPEN) == (count == 5)
    assert not breaker.allows(NOW)


def test_a_success_between_them_starts_the_count_again():
    breaker = Breaker()
    for _ in range(10):
        for _ in range(4):
            breaker.failed(NOW)
        breaker.succeeded()
    assert breaker.state is CLOSED


def test_after_ten_seconds_one_trial_is_let_through():
    breaker = opened()
    assert not breaker.allows(NOW + 9_999)
    assert breaker.allows(NOW + 10_000)
    assert breaker.state is HALF_OPEN
    assert not breaker.allows(NOW + 10_000)
    assert not breaker.allows(NOW + 10_001)


def test_two_successes_close_it():
    breaker = opened()
    assert breaker.allows(NOW + 10_000)
    breaker.succeeded()
    assert breaker.state is HALF_OPEN
    assert breaker.allows(NOW + 10_000)
    assert not breaker.allows(NOW + 10_000)
    breaker.succeeded()
    assert breaker.state is CLOSED
    assert breaker.allows(NOW + 10_000)


def test_a_trial_that_fails_opens_it_again_for_twice_as_long_up_to_a_minute():
    breaker, now = opened(), NOW
    for wait in (10_000, 20_000, 40_000, 60_000, 60_000):
        assert not breaker.allows(now + wait - 1)
        assert breaker.allows(now + wait)
        now += wait
        breaker.failed(now)
        assert breaker.state is OPEN


def test_a_failure_after_one_success_opens_it_again():
    breaker = opened()
    assert breaker.allows(NOW + 10_000)
    breaker.succeeded()
    assert breaker.allows(NOW + 10_000)
    breaker.failed(NOW + 10_000)
    assert breaker.state is OPEN
    assert not breaker.allows(NOW + 29_999)


def test_closing_it_resets_the_wait():
    breaker = opened()
    breaker.allows(NOW + 10_000)
    breaker.failed(NOW + 10_000)
    for _ in range(2):
        assert breaker.allows(NOW + 30_000)
        breaker.succeeded()
    assert breaker.state is CLOSED
    for _ in range(5):
        breaker.failed(NOW + 30_000)
    assert not breaker.allows(NOW + 39_999)
    assert breaker.allows(NOW + 40_000)


def test_a_trial_whose_caller_died_gives_its_place_up():
    breaker = opened()
    assert breaker.allows(NOW + 10_000)
    assert not breaker.allows(NOW + 19_999)
    assert breaker.allows(NOW + 20_000)


def test_a_late_failure_of_a_request_sent_before_it_opened_changes_nothing():
    breaker = opened()
    breaker.failed(NOW + 9_000)
    assert breaker.allows(NOW + 10_000)


def test_a_late_success_of_a_request_sent_before_it_opened_does_not_close_it():
    breaker = opened()
    breaker.succeeded()
    assert breaker.state is OPEN
    assert not breaker.allows(NOW + 9_999)
