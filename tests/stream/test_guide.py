"""docs/guide/usage.md, run as its reader would, with the aggregator at work in between."""

from __future__ import annotations

import engine
from headgate import SyncRateLimiter
from tests.docs.examples import python_blocks
from tests.stream.test_handler import Table, deliver

from aggregator import handler as aggregator  # isort: skip - after the environment is set


def test_the_code_of_the_page_runs_from_top_to_bottom(ministack, monkeypatch):
    url = ministack.endpoint_url
    for name, value in engine.environment(url).items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("HEADGATE_TABLE", "limits")
    aggregator.aggregator.cache_clear()
    table = Table(url, name="limits")
    names = {}
    try:
        for block in python_blocks("docs/guide/usage.md"):
            block.run(names)
            deliver(table.records())
    finally:
        for value in names.values():
            if isinstance(value, SyncRateLimiter):
                value.close()
        aggregator.aggregator.cache_clear()
        table.close()
