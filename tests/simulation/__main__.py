"""`make simulate SEEDS=100000`: as many days as wanted, on all cores; a broken one is shown."""

from __future__ import annotations

import argparse
import logging
import multiprocessing
import os
import sys
import time
from collections import Counter

from tests.simulation.scenario import KINDS, run


def attempt(job):
    logging.disable(logging.CRITICAL)
    seed, kind = job
    try:
        return run(seed, kind), None
    except AssertionError as broken:
        return {}, str(broken)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=20_000)
    parser.add_argument("--start", type=int, default=0)
    parser.add_argument("--kind", choices=KINDS)
    options = parser.parse_args()
    jobs = [(seed, options.kind) for seed in range(options.start, options.start + options.seeds)]
    began, totals, broken = time.monotonic(), Counter(), []
    with multiprocessing.Pool(os.cpu_count()) as pool:
        for result, failure in pool.imap_unordered(attempt, jobs, chunksize=50):
            totals.update(result)
            if failure:
                broken.append(failure)
                print(failure, flush=True)
    spent = time.monotonic() - began
    counts = ", ".join(f"{count:,} {name}" for name, count in sorted(totals.items()))
    print(f"{len(jobs):,} seeds in {spent:.0f} s: {counts}; {len(broken)} broken promises")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
