"""The promises hold for thousands of seeded days. HEADGATE_SEEDS sets how many."""

from __future__ import annotations

import os

import pytest

from tests.simulation.scenario import KINDS, run

SEEDS = int(os.environ.get("HEADGATE_SEEDS", "2400"))
CHUNK = 100


@pytest.mark.parametrize("start", range(0, SEEDS, CHUNK))
def test_the_promises_hold_whatever_happens(start):
    for seed in range(start, start + CHUNK):
        run(seed)


def test_the_days_are_busy_enough_to_prove_anything():
    totals = dict.fromkeys(("admitted", "rejected", "debits"), 0)
    for kind in KINDS:
        for seed in range(5):
            result = run(seed, kind)
            for name in totals:
                totals[name] += result[name]
    assert all(count > 100 for count in totals.values()), totals
