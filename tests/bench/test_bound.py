"""What was admitted is held against capacity and refill, in every interval."""

from __future__ import annotations

import pytest

from benchmarks.bound import SLACK, verdict


def test_nothing_admitted_is_nothing_to_judge():
    assert verdict([], 10, 1) is None


def test_a_full_bucket_and_its_refill_are_just_within_the_bound():
    draws = [(0.0, 10), *((float(second), 2) for second in range(1, 6))]
    found = verdict(draws, capacity=10, rate=2)
    assert (found.admitted, found.bound, found.excess) == (20, 20, 0)
    assert found.held


def test_twice_the_capacity_at_once_is_beyond_it():
    found = verdict([(0.0, 10), (0.1, 9)], capacity=10, rate=10, longest=0.05)
    assert found.excess == pytest.approx(8)
    assert found.allowance == pytest.approx(10 * (SLACK + 0.05))
    assert not found.held


def test_an_idle_time_before_does_not_excuse_a_burst():
    """Over the whole time there was room for all of it; not in the interval that counts."""
    found = verdict([(0.0, 1), (100.0, 10), (100.1, 10)], capacity=10, rate=1)
    assert found.admitted < found.bound
    assert found.excess == pytest.approx(9.9)


def test_the_order_in_which_clients_report_does_not_matter():
    draws = [(3.0, 1), (1.0, 4), (2.0, 2)]
    assert verdict(draws, 5, 1) == verdict(sorted(draws), 5, 1)


def test_what_latency_is_worth_is_allowed():
    assert verdict([(0.0, 10), (0.01, 1)], capacity=10, rate=10).held
