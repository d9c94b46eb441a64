"""Making a limiter: options are checked at once, and nothing is sent until it is used."""

from __future__ import annotations

import boto3
import pytest
from botocore.config import Config

from headgate import Limit, RateLimiter, SyncRateLimiter, ValidationError

KINDS = pytest.mark.parametrize("kind", [SyncRateLimiter, RateLimiter], ids=["sync", "async"])
RPM = [Limit.per_minute("rpm", 10)]


@pytest.fixture
def env(monkeypatch):
    for name in ("TABLE", "NAMESPACE", "NAMESPACE_ID", "ON_UNAVAILABLE"):
        monkeypatch.delenv(f"HEADGATE_{name}", raising=False)
    return monkeypatch.setenv


@KINDS
def test_a_table_is_all_it_takes(kind):
    settings = kind("my-table")._core.settings
    assert settings.table == "my-table"
    assert settings.namespace == "default"
    assert settings.on_unavailable == "block"
    assert settings.limits == ()


BAD = {
    "table": "",
    "namespace": "a/b",
    "namespace_id": "short",
    "on_unavailable": "maybe",
    "attempts": 0,
    "max_cached": 0,
    "config_ttl": -1,
    "rejection_memory": "1",
    "connect_timeout": -0.1,
    "read_timeout": float("nan"),
    "limits": ["rpm"],
}


@KINDS
@pytest.mark.parametrize("name", BAD)
def test_every_option_is_checked_and_shown(kind, name):
    options = {"table": "my-table", name: BAD[name]}
    with pytest.raises(ValidationError) as caught:
        kind(**options)
    shown = BAD[name][0] if name == "limits" else BAD[name]
    assert repr(shown) in str(caught.value)


@KINDS
@pytest.mark.parametrize("value", [True, 1.5, "2", None])
def test_counts_are_whole_numbers(kind, value):
    for name in ("attempts", "max_cached"):
        with pytest.raises(ValidationError, match=name):
            kind("my-table", **{name: value})


@KINDS
def test_an_unknown_option_is_an_error(kind):
    with pytest.raises(TypeError, match="on_unavailible"):
        kind("my-table", on_unavailible="allow")


@KINDS
def test_the_environment_makes_a_limiter(kind, env):
    env("HEADGATE_TABLE", "my-table")
    env("HEADGATE_NAMESPACE", "production")
    env("HEADGATE_NAMESPACE_ID", "abcdefghijk")
    env("HEADGATE_ON_UNAVAILABLE", "allow")
    limiter = kind.from_env(limits=RPM)
    assert isinstance(limiter, kind)
    settings = limiter._core.settings
    assert (settings.table, settings.namespace) == ("my-table", "production")
    assert (settings.namespace_id, settings.on_unavailable) == ("abcdefghijk", "allow")
    assert settings.limits == RPM


@KINDS
def test_what_the_environment_leaves_out_has_its_default(kind, env):
    env("HEADGATE_TABLE", "my-table")
    env("HEADGATE_NAMESPACE", "")
    settings = kind.from_env()._core.settings
    assert (settings.namespace, settings.namespace_id) == ("default", None)
    assert settings.on_unavailable == "block"


@KINDS
def test_arguments_win_over_the_environment(kind, env):
    env("HEADGATE_TABLE", "my-table")
    env("HEADGATE_ON_UNAVAILABLE", "allow")
    settings = kind.from_env(table="other", on_unavailable="block")._core.settings
    assert (settings.table, settings.on_unavailable) == ("other", "block")


@KINDS
def test_an_environment_without_a_table_is_an_error_that_says_what_to_do(kind, env):
    with pytest.raises(ValidationError, match="HEADGATE_TABLE is not set"):
        kind.from_env()


@KINDS
def test_a_value_of_the_environment_is_checked_like_any_other(kind, env):
    env("HEADGATE_TABLE", "my-table")
    env("HEADGATE_ON_UNAVAILABLE", "sometimes")
    with pytest.raises(ValidationError, match="'sometimes'"):
        kind.from_env()


def test_a_client_comes_alone():
    client = boto3.client("dynamodb", config=Config(retries={"total_max_attempts": 1}))
    for name, value in (
        ("session", boto3.Session()),
        ("region", "eu-west-1"),
        ("endpoint_url", "http://localhost"),
    ):
        with pytest.raises(ValidationError, match="either client or session"):
            SyncRateLimiter("my-table", client=client, **{name: value})
    client.close()


def test_a_limiter_is_let_go_of_at_the_end_of_its_block():
    with SyncRateLimiter("my-table") as limiter:
        assert limiter.clock_offset == 0
    limiter.close()


async def test_an_async_limiter_is_let_go_of_at_the_end_of_its_block():
    async with RateLimiter("my-table") as limiter:
        assert limiter.clock_offset == 0
    await limiter.close()


def test_a_blocking_limiter_decorates_no_coroutine_functions():
    async def work():
        """Would run after the lease was left."""

    limiter = SyncRateLimiter("my-table", limits=RPM)
    with pytest.raises(ValidationError, match="use RateLimiter"):
        limiter.acquire("alice", "gpt-4", {"rpm": 1})(work)


def test_an_async_limiter_decorates_coroutine_functions_only():
    limiter = RateLimiter("my-table", limits=RPM)
    with pytest.raises(ValidationError, match="SyncRateLimiter"):
        limiter.acquire("alice", "gpt-4", {"rpm": 1})(lambda: None)
