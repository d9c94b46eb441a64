"""The command as a user runs it: a process of its own, its output, its exit code."""

from __future__ import annotations

import json
import os
import xml.etree.ElementTree as ET

import pytest

from headgate.cli.app import hoisted
from headgate.cli.audit import difference
from tests.servers import error, serving


def test_acquire_check_and_status_tell_people_and_programs_the_same(headgate):
    headgate("limits", "set", "rpm=10/minute", "tpm=100/hour,burst=500")
    done = headgate("acquire", "alice", "gpt-4", "rpm=2", "tpm=40")
    assert done.code == 0
    assert "admitted: 2 rpm, 40 tpm" in done.out
    told = headgate.told("status", "alice")
    (bucket,) = told["buckets"]
    assert (bucket["resource"], bucket["level"], bucket["mode"]) == ("gpt-4", "system", "normal")
    assert [limit["capacity"] for limit in bucket["limits"]] == [10, 500]
    assert headgate.told("check", "alice", "gpt-4", "tpm=1")["allowed"] is True
    text = headgate("status", "alice").out
    assert "gpt-4" in text
    assert "100 / hour, burst 500" in text


def test_a_rejection_exits_with_one_and_says_when_to_come_back(headgate):
    headgate("limits", "set", "rpm=1/hour")
    assert headgate("acquire", "alice", "gpt-4", "rpm=1").code == 0
    done = headgate("acquire", "alice", "gpt-4", "rpm=1")
    assert done.code == 1
    assert "retry after" in done.err
    told = headgate("acquire", "alice", "gpt-4", "rpm=1", "--json")
    error = json.loads(told.err)
    assert (error["error"], error["exit_code"]) == ("RateLimitExceeded", 1)
    assert error["retry_after"] > 3_000
    checked = headgate("check", "alice", "gpt-4", "rpm=2")
    assert (checked.code, "waiting will not help" in checked.out) == (1, True)


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (["status"], 2, "Missing argument"),
        (["fly"], 2, "No such command"),
        (["acquire", "a", "b", "rpm=x"], 2, "NAME=NUMBER"),
        (["limits", "set", "rpm=1/fortnight"], 2, "second, minute, hour, day or never"),
        (["limits", "set", "rpm=1/minute", "--entity", "a#b"], 2, "'a#b'"),
        (["audit", "--since", "soon"], 2, "'soon'"),
        (["usage", "list", "--entity", "a", "--window", "yearly"], 2, "'yearly'"),
        (["usage", "plot", "--entity", "a", "--output", "a.gif"], 2, ".svg or .png: 'a.gif'"),
        (["namespace", "delete", "default"], 5, "no namespace 'default'"),
        (["limits", "list", "--namespace", "nope"], 5, "register_namespace('nope')"),
        (["entity", "get", "nobody"], 5, "'nobody'"),
        (["--table", "nope", "status", "a"], 5, "'nope'"),
        (["acquire", "a", "b", "rpm=1"], 2, "no limits for entity 'a'"),
        (["--endpoint-url", "http://127.0.0.1:9", "status", "a"], 3, "did not answer"),
        (["limits", "plan", "nowhere.yaml"], 2, "nowhere.yaml"),
    ],
)
def test_what_goes_wrong_is_a_sentence_and_a_code(headgate, words, code, says):
    done = headgate(*words, TERMINAL_WIDTH="200")
    assert done.code == code, done.err
    assert says in done.err


def test_without_a_table_it_says_how_to_name_one(headgate):
    done = headgate("status", "a", HEADGATE_TABLE="")
    assert done.code == 2
    assert "--table" in done.err


def test_options_of_all_commands_may_stand_anywhere():
    words = ["status", "a", "--json", "--table", "t", "--region=x", "--", "--json"]
    assert hoisted(words) == ["--json", "--table", "t", "--region=x", "status", "a", "--", "--json"]
    assert hoisted(["status", "--table"]) == ["--table", "status"]


def test_help_documents_the_exit_codes_and_every_command_has_help(headgate):
    text = headgate("--help").out
    assert "Exit codes" in text
    for command in "acquire check status entity limits resource namespace audit usage top".split():
        assert headgate(command, "--help").code == 0
    for command in ("doctor", "version", "migrate", "local"):
        assert command in text


def test_entities_are_created_changed_listed_and_deleted(headgate):
    headgate("entity", "create", "org", "--name", "Org", "-m", "tier=gold")
    headgate("entity", "create", "team", "--parent", "org", "--cascade")
    assert headgate.told("entity", "get", "org")["metadata"] == {"tier": "gold"}
    assert [e["entity_id"] for e in headgate.told("entity", "children", "org")] == ["team"]
    headgate("entity", "update", "team", "--no-cascade", "--name", "Team")
    found = {e["entity_id"]: e for e in headgate.told("entity", "list")}
    assert (found["team"]["cascade"], found["team"]["name"]) == (False, "Team")
    assert headgate("entity", "update", "team").code == 2
    assert headgate("entity", "delete", "org").code == 2  # it has children
    assert headgate("entity", "delete", "team").code == 0
    assert headgate("entity", "delete", "team").code == 5


def test_switches_reset_and_top_up(headgate):
    headgate("limits", "set", "rpm=10/hour", "--resource", "gpt-4")
    headgate("acquire", "alice", "gpt-4", "rpm=10")
    first = headgate.told("entity", "top-up", "alice", "gpt-4", "rpm=3", "--key", "k")
    again = headgate.told("entity", "top-up", "alice", "gpt-4", "rpm=3", "--key", "k")
    assert (first["done"], again["done"]) == (True, False)
    assert first["available"] == {"rpm": 3}
    headgate("resource", "disable", "gpt-4")
    assert headgate.told("status", "alice")["buckets"][0]["mode"] == "disabled"
    done = headgate("acquire", "alice", "gpt-4", "rpm=1")
    assert (done.code, "disabled" in done.err) == (1, True)
    headgate("resource", "bypass", "gpt-4")
    assert headgate("acquire", "alice", "gpt-4", "rpm=50").code == 0
    headgate("resource", "enable", "gpt-4")
    assert headgate.told("entity", "reset", "alice", "gpt-4")["available"] == {"rpm": 10}


def test_operations_have_costs(headgate):
    headgate("limits", "set", "rpm=10/hour", "units=500/hour", "--resource", "reports")
    headgate("resource", "costs", "set", "reports", "export", "rpm=1", "units=100")
    headgate("resource", "costs", "set", "reports", "read", "rpm=1")
    assert headgate.told("acquire", "a", "reports", "export")["consumed"] == {
        "rpm": 1,
        "units": 100,
    }
    headgate("resource", "costs", "set", "reports", "read")
    assert headgate.told("resource", "costs", "show", "reports") == {
        "export": {"rpm": 1, "units": 100}
    }
    assert headgate("acquire", "a", "reports", "read").code == 2
    (row,) = headgate.told("resource", "list")
    assert row["costs"] == {"export": {"rpm": 1, "units": 100}}
    assert headgate.told("resource", "status", "reports")["buckets"][0]["entity_id"] == "a"


def test_every_change_is_in_the_audit_with_who_made_it(headgate):
    headgate("limits", "set", "rpm=10/hour", "--entity", "alice", HEADGATE_PRINCIPAL="ann")
    headgate("limits", "set", "rpm=20/hour", "--entity", "alice", "--principal", "bob")
    page = headgate.told("audit", "--entity", "alice", "--since", "1h")
    assert [(e["principal"], e["action"]) for e in page["events"]] == [
        ("bob", "limits_set"),
        ("ann", "limits_set"),
    ]
    assert "limits.rpm.capacity 10 → 20" in headgate("audit", "--entity", "alice").out
    some = headgate.told("audit", "--entity", "alice", "--limit", "1")
    rest = headgate.told("audit", "--entity", "alice", "--cursor", some["cursor"])
    assert [e["principal"] for e in rest["events"]] == ["ann"]
    assert headgate.told("audit", "--entity", "alice", "--until", "1h")["events"] == []


def test_a_difference_names_what_is_not_as_it_was():
    before = {"limits": {"rpm": {"capacity": 1}}, "mode": "bypass", "same": 1}
    after = {"limits": {"rpm": {"capacity": 2}, "tpm": {"capacity": 3}}, "same": 1}
    assert difference(before, after).splitlines() == [
        "limits.rpm.capacity 1 → 2",
        "+ limits.tpm.capacity 3",
        "- mode bypass",
    ]


def test_namespaces_live_die_and_come_back(headgate):
    made = headgate.told("namespace", "register", "team-a")
    headgate("limits", "set", "rpm=1/day", "--namespace", "team-a")
    assert headgate("namespace", "delete", "team-a").code == 2  # there is nobody to ask
    headgate("namespace", "delete", "team-a", "--yes")
    assert [n["id"] for n in headgate.told("namespace", "orphans")] == [made["id"]]
    headgate("namespace", "recover", made["id"])
    assert [n["name"] for n in headgate.told("namespace", "list")] == ["team-a"]
    headgate("namespace", "delete", "team-a", "--yes")
    purged = headgate.told("namespace", "purge", made["id"], "--yes")
    assert purged["items"] == 3  # its version, its limits, their event
    actions = [e["action"] for e in headgate.told("audit", "--of-namespace", "team-a")["events"]]
    assert actions[0] == "namespace_purged"
    assert actions[-1] == "namespace_registered"


def test_top_shows_the_busiest_first_once_if_asked(headgate):
    headgate("limits", "set", "rpm=100/minute")
    for who, amount in (("a", 5), ("b", 90)):
        headgate("acquire", who, "gpt-4", f"rpm={amount}")
    rows = headgate.told("top", "gpt-4", "--once", "--interval", "0.1")
    assert [row["entity_id"] for row in rows] == ["b", "a"]
    assert "2 buckets in use" in headgate("top", "gpt-4", "--once", "--interval", "0.1").out


def test_the_doctor_finds_what_is_wrong_and_says_what_to_do(headgate, ministack, table):
    findings = {f["what"]: f for f in json.loads(headgate("doctor", "--json").out)}
    assert findings["table"]["verdict"] == findings["GSI2"]["verdict"] == "ok"
    assert findings["permissions"]["verdict"] == "ok"
    assert findings["functions"]["verdict"] == "warn"
    assert findings["expiry"]["verdict"] == "fail"  # this table was made without it
    done = headgate("doctor")
    assert done.code == 1
    assert "turn TTL on for the attribute ttl" in done.out
    assert headgate("doctor", "--table", "nope").code == 1


def test_the_namespaces_version_is_shown_and_asked_for(headgate):
    headgate("namespace", "register", "default")
    assert headgate.told("version")["schema"] == 1
    assert headgate.told("version", "--require", "99.0")["client_minimum"] == "99.0"
    done = headgate("limits", "set", "rpm=1/day")
    assert (done.code, "99.0 or later" in done.err) == (6, True)
    headgate("version", "--require", "")
    assert headgate.told("migrate") == {"from": 1, "to": 1}


def test_a_picture_of_what_is_shown_can_be_kept(headgate, tmp_path):
    headgate("limits", "set", "rpm=10/hour")
    headgate("acquire", "alice", "gpt-4", "rpm=1")
    headgate("status", "alice", "--save", "status.svg")
    root = ET.fromstring((tmp_path / "status.svg").read_text())  # noqa: S314 - our own file
    assert root.find("{http://www.w3.org/2000/svg}title").text == "headgate status"
    assert "https://" not in (tmp_path / "status.svg").read_text()


def test_without_the_extra_it_says_what_to_install(headgate, tmp_path):
    (tmp_path / "typer.py").write_text("raise ImportError('no typer', name='typer')\n")
    path = f"{tmp_path}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"
    done = headgate("status", "a", PYTHONPATH=path)
    assert (done.code, "pip install 'headgate[cli]'" in done.err) == (2, True)


def test_the_local_engine_goes_up_and_down(headgate, tmp_path):
    from tests.cli.shell import ROOT

    where = {"HEADGATE_LOCAL": str(tmp_path / "engine"), "HEADGATE_TABLE": "mine"}
    where["HEADGATE_ENGINE"] = str(ROOT / ".engine/bin/ministack")
    try:
        told = headgate.told("local", "up", **where)
        assert told["HEADGATE_TABLE"] == "mine"
        again = headgate.told("local", "up", **where)
        assert again["pid"] == told["pid"]
        there = {"AWS_ENDPOINT_URL": told["endpoint_url"], "HEADGATE_TABLE": "mine"}
        assert headgate("doctor", **there).code == 0
    finally:
        assert headgate.told("local", "down", **where) == {"ended": True}
    assert headgate.told("local", "down", **where) == {"ended": False}
    assert headgate("status", "a", **there).code == 3


def test_an_engine_that_is_not_installed_is_said_to_be(headgate, tmp_path):
    done = headgate("local", "up", HEADGATE_LOCAL=str(tmp_path / "x"), PATH="/nonexistent")
    assert (done.code, "pipx install ministack" in done.err) == (2, True)


def test_what_is_not_allowed_has_a_code_of_its_own(headgate):
    with serving(lambda operation, body: error("AccessDeniedException")) as server:
        done = headgate("status", "a", "--endpoint-url", server.url)
        examined = headgate("doctor", "--endpoint-url", server.url)
    assert (done.code, "not allowed" in done.err) == (4, True)
    assert examined.code == 1


def test_shells_can_complete_it(headgate):
    assert "complete" in headgate(_HEADGATE_COMPLETE="source_bash").out
