"""A client opens only what it understands."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from headgate import IncompatibleVersion, Limit, ValidationError, migrations, versions

RPM = [Limit.per_minute("rpm", 10)]
ROOT = Path(__file__).resolve().parents[2]


def take(limiter):
    with limiter.acquire("alice", "gpt-4", {"rpm": 1}) as lease:
        return lease


def test_the_client_knows_its_own_version():
    text = (ROOT / "pyproject.toml").read_text()
    assert re.search(r'^version = "(.+)"$', text, re.MULTILINE)[1] == versions.CLIENT


@pytest.fixture
def opened(backend):
    """An operator's limiter and a way to make other clients of the same namespace."""
    operator = backend.limiter(namespace_id=None, namespace="team-a", limits=RPM)
    made = operator.register_namespace("team-a")

    def another(by_id=False):
        where = {"namespace_id": made.id} if by_id else {"namespace_id": None}
        return backend.limiter(**where, namespace="team-a", limits=RPM, on_unavailable="allow")

    return operator, another


def test_a_new_namespace_has_this_clients_schema(opened):
    operator, _ = opened
    assert operator.get_version() == versions.Version(versions.SCHEMA)


@pytest.mark.parametrize("by_id", [True, False])
def test_a_client_that_is_too_old_writes_nothing_and_says_what_to_do(opened, by_id):
    operator, another = opened
    operator.require_client("99.1")
    old = another(by_id)
    with old.sending() as sent, pytest.raises(IncompatibleVersion, match=r"99\.1 or later"):
        take(old)
    assert not {"UpdateItem", "PutItem", "TransactWriteItems"} & set(sent)
    with pytest.raises(IncompatibleVersion, match="upgrade"):
        another(by_id).create_entity("alice")
    assert operator.get_version().client_minimum == "99.1"
    operator.require_client(None)
    assert take(another(by_id)).consumed == {"rpm": 1}


@pytest.mark.parametrize(("ours", "advice"), [(0, "upgrade headgate"), (2, "headgate migrate")])
def test_another_schema_is_refused_with_the_way_out(opened, ours, advice, monkeypatch):
    _, another = opened
    monkeypatch.setattr(versions, "SCHEMA", ours)
    with pytest.raises(IncompatibleVersion, match=advice):
        take(another())


@pytest.mark.parametrize("by_id", [True, False])
def test_the_check_costs_no_request(opened, by_id):
    _, another = opened
    limiter = another(by_id)
    with limiter.sending() as sent:
        take(limiter)
    # The registry if the name is all that is known, configuration and version, a guess, the
    # entity, the bucket.
    registry = [] if by_id else ["BatchGetItem"]
    assert sent == [*registry, "BatchGetItem", "UpdateItem", "BatchGetItem", "PutItem"]
    with limiter.sending() as sent:
        take(limiter)
    assert sent == ["UpdateItem"]


def test_a_migration_takes_every_step_and_files_it(opened, monkeypatch):
    operator, another = opened
    steps = []

    def step(number):
        def flow(core, ns):
            steps.append(number)
            return
            yield

        return flow

    for module in (versions, migrations):
        monkeypatch.setattr(module, "SCHEMA", 3)
    monkeypatch.setattr(migrations, "STEPS", {1: step(1), 2: step(2)})
    assert operator.migrate() == (1, 3)
    assert steps == [1, 2]
    assert operator.get_version().schema == 3
    assert operator.migrate() == (3, 3)
    assert take(another()).consumed == {"rpm": 1}
    filed = operator.get_audit_events().events
    assert [event.after["schema"] for event in filed] == [3, 2]


def test_a_namespace_without_a_record_has_the_first_schema_and_gets_one(backend):
    limiter = backend.limiter(limits=RPM)
    assert take(limiter).consumed == {"rpm": 1}
    assert limiter.migrate() == (1, 1)
    assert [event.action for event in limiter.get_audit_events().events] == ["version_set"]


@pytest.mark.parametrize("value", ["", "1.x", "v1", 1, "1.2.3.4.5"])
def test_a_version_that_is_none_is_refused(opened, value):
    with pytest.raises(ValidationError, match=re.escape(repr(value))):
        opened[0].require_client(value)


def test_versions_compare_by_their_numbers():
    assert versions.ordered("1.10") > versions.ordered("1.9.9")
    assert versions.ordered("1.0") == versions.ordered("1")
