"""Where the SDK cannot even ask, the caller learns what is missing, in our own words."""

from __future__ import annotations

import asyncio

import pytest

from headgate import RateLimiter, SyncRateLimiter, TableError


@pytest.fixture(autouse=True)
def no_region(monkeypatch):
    for name in ("AWS_REGION", "AWS_DEFAULT_REGION"):
        monkeypatch.delenv(name, raising=False)


def test_without_a_region_the_error_says_so_and_names_the_table():
    with SyncRateLimiter("limits") as limiter, pytest.raises(TableError, match=r"'limits'.*region"):
        limiter.available("alice", "gpt-4")


def test_without_a_region_the_async_error_is_the_same():
    async def ask():
        async with RateLimiter("limits") as limiter:
            await limiter.available("alice", "gpt-4")

    with pytest.raises(TableError, match=r"'limits'.*region"):
        asyncio.run(ask())


def test_no_policy_turns_a_missing_region_into_admission():
    with SyncRateLimiter("limits", on_unavailable="allow") as limiter, pytest.raises(TableError):
        limiter.acquire("alice", "gpt-4", {"rpm": 1}).__enter__()
