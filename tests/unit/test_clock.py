"""The clock, checked against answers whose `Date` is cut to a second and may be a second old."""

from __future__ import annotations

from datetime import UTC, datetime
from email.utils import format_datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.clock import Clock, system_time
from tests import strategies as some

HOUR = 3_600_000
NOW = 1_800_000_000_000


def date(ms, lag=0):
    """The `Date` of an answer made at this time, from a server that renews it now and then."""
    return format_datetime(datetime.fromtimestamp((ms - lag) // 1000, UTC), usegmt=True)


class Host:
    """A host whose clock is off, in a world where time passes."""

    def __init__(self, off, now=NOW):
        self.now, self.off = now, off
        self.clock = Clock(lambda: self.now + self.off)

    def ask(self, there=5, back=5, lag=0):
        sent = self.clock.raw()
        self.now += there
        answered = date(self.now, lag)
        self.now += back
        self.clock.observe(answered, sent, self.clock.raw())

    @property
    def error(self):
        return self.clock.now() - self.now


@pytest.mark.parametrize("off", [HOUR, -HOUR, 10_000, -10_000, 86_400_000])
def test_a_clock_that_is_far_off_is_corrected_by_one_answer(off):
    host = Host(off)
    assert not host.clock.checked
    host.ask()
    assert host.clock.checked
    assert -1_010 <= host.error <= 0
    assert host.clock.offset == pytest.approx(off, abs=1_010)


@pytest.mark.parametrize("off", [-400, -50, -10])
def test_a_clock_that_is_a_little_slow_is_never_made_worse(off):
    host = Host(off)
    for step in range(200):
        host.ask(there=1, back=1, lag=step % 3)
        host.now += 137
        assert off <= host.error <= 0
    assert host.error >= -10


@pytest.mark.parametrize("off", [0, 1, 50, 400])
def test_a_good_clock_is_left_untouched(off):
    host = Host(off)
    for step in range(200):
        host.ask(there=1 + step % 7, back=1 + step % 11, lag=step % 1000)
        host.now += 137
        assert host.clock.offset == 0
        assert host.error == off


@given(some.clocks(), st.integers(0, 2_000), st.integers(0, 2_000), st.integers(0, 999))
def test_one_answer_never_makes_a_clock_worse_than_two_seconds_and_the_trip(
    world, there, back, lag
):
    clock, _, truth = world
    sent = clock.raw()
    truth[0] += there
    answered = date(truth[0], lag)
    truth[0] += back
    clock.observe(answered, sent, clock.raw())
    error = clock.now() - truth[0]
    assert abs(error) <= 2_000 + there + back
    if clock.offset:
        # It was provably wrong. Now it is late, if anything: that admits less, never more.
        assert error <= 0


def test_many_answers_narrow_it_down():
    host = Host(HOUR)
    for step in range(50):
        host.ask(there=2, back=2)
        host.now += 1_000 - 4 + 20 * (step % 2)
    assert abs(host.error) < 1_000


@pytest.mark.parametrize("off", [HOUR, -HOUR])
def test_a_clock_that_is_set_meanwhile_is_corrected_anew(off):
    host = Host(0)
    host.ask()
    host.now += 30_000
    host.off = off
    host.ask()
    assert abs(host.error) <= 1_010
    host.now += 30_000
    host.off = 0
    host.ask()
    assert abs(host.error) <= 1_010


def test_a_clock_that_was_put_right_is_left_alone_again():
    host = Host(HOUR)
    host.ask()
    host.off = 0
    host.now += 1_500
    host.ask()
    assert host.clock.offset == 0


def test_old_answers_are_forgotten_so_that_a_drift_is_noticed():
    host = Host(0)
    for _ in range(600):
        host.ask()
        host.now += 30_000
        host.off += 20
    assert abs(host.error) <= 2_010


@pytest.mark.parametrize("header", [None, "", "yesterday", "Thu, 99 Foo 2030 00:00:00 GMT", "0"])
def test_an_answer_without_a_usable_date_is_ignored(header):
    clock = Clock(lambda: NOW)
    clock.observe(header, NOW, NOW)
    assert not clock.checked
    assert clock.now() == NOW


def test_the_systems_time_is_in_whole_milliseconds():
    assert isinstance(system_time(), int)
    assert Clock().now() > NOW - 10 * 365 * 86_400_000
