"""The example of metered model calls: what buckets lose is what the model's server reports."""

from __future__ import annotations

import runpy
import subprocess
import sys
import urllib.error
from types import SimpleNamespace

import pytest

from headgate import RateLimitExceeded
from tests.behaviour.backends import simulator
from tests.docs.examples import ROOT

HERE = ROOT / "examples/llm"
PROMPT = " ".join(["word"] * 100)


@pytest.fixture(scope="module")
def chat():
    return SimpleNamespace(**runpy.run_path(str(HERE / "chat.py")))


@pytest.fixture(scope="module")
def url():
    with runpy.run_path(str(HERE / "server.py"))["completion_server"]() as running:
        yield running


@pytest.fixture
def limiter(request, chat):
    with simulator(request) as backend:
        made = backend.limiter().limiter
        chat.set_up(made, "acme", ["alice", "bob"], user_tpm=1_000, organisation_tpm=1_500)
        yield made
        backend.close()


def left(limiter, *who):
    return [limiter.available(one, "gpt-4")["tpm"] for one in who]


def test_users_and_their_organisation_lose_what_the_server_reports(chat, limiter, url):
    text, used = chat.ask(limiter, url, "alice", PROMPT)
    assert (text, used) == (f"{PROMPT} {PROMPT}", 300)
    assert chat.ask(limiter, url, "bob", "one two", max_tokens=50)[1] == 6
    assert left(limiter, "alice", "bob", "acme") == [700, 994, 1_194]


def test_a_call_that_fails_takes_nothing(chat, limiter, url):
    with pytest.raises(urllib.error.HTTPError) as failed:
        chat.ask(limiter, url, "alice", "please fail")
    failed.value.close()
    assert left(limiter, "alice", "acme") == [1_000, 1_500]


def test_whoever_is_short_is_named_and_the_call_is_not_made(chat, limiter, url):
    for user in ("alice", "alice", "bob", "bob"):
        chat.ask(limiter, url, user, PROMPT)
    with pytest.raises(RateLimitExceeded) as refused:
        chat.ask(limiter, url, "alice", PROMPT, max_tokens=250)
    assert refused.value.entity_id == "acme"
    assert left(limiter, "alice", "bob", "acme") == [400, 400, 300]


def test_it_runs_as_its_first_lines_say():
    done = subprocess.run(
        [sys.executable, str(HERE / "run.py")], capture_output=True, text=True, check=True
    )
    first, *_, last = done.stdout.splitlines()
    assert first.startswith("alice: used 300, left {'alice': 2")
    assert "refused, acme has" in last
