"""One file: planned before it is applied, applied once, and only what it owns."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import pytest
import yaml

from headgate.cli import document
from tests.cli.shell import ROOT

FILE = """
version: 1
owner: platform
namespaces:
  default:
    system:
      limits: {rpm: {per_minute: 60}}
      on_unavailable: allow
    resources:
      reports:
        limits:
          rpm: {per_minute: 600, burst: 900}
          seats: {capacity: 5, refill_amount: 0, refill_period: 1}
        costs: {export: {rpm: 1, seats: 2}}
    entities:
      org: {name: Org, metadata: {tier: gold}}
      team: {parent: org, cascade: true, limits: {rpm: {per_day: 7}}}
      visitor:
        recorded: false
        resources: {reports: {limits: {rpm: {per_hour: 3}}}}
  team-a:
"""


@pytest.fixture
def write(tmp_path):
    def written(text, name="limits.yaml"):
        (tmp_path / name).write_text(text)
        return name

    return written


def changed(text, **how):
    content = yaml.safe_load(text)
    for path, value in how.items():
        *parents, last = path.split("__")
        place = content
        for part in parents:
            place = place[part.replace("_a", "-a")]
        if value is None:
            del place[last]
        else:
            place[last] = value
    return yaml.safe_dump(content)


def test_the_schema_is_published_as_it_is_shipped_and_is_one(headgate):
    shipped = json.loads((ROOT / "client/headgate/cli/limits.schema.json").read_text())
    assert shipped == json.loads((ROOT / "docs/reference/limits.schema.json").read_text())
    assert json.loads(headgate("limits", "schema").out) == shipped
    jsonschema.Draft202012Validator.check_schema(shipped)


def test_a_plan_shows_everything_and_changes_nothing(headgate, write):
    file = write(FILE)
    done = headgate("limits", "plan", file)
    assert done.code == 0
    assert "+ namespace 'team-a'" in done.out
    assert "+ the limits of entity 'visitor' on resource 'reports' in 'default'" in done.out
    assert "    rpm: per_minute 600, burst 900" in done.out
    assert "Plan: 9 to create, 0 to update, 0 to delete." in done.out
    assert headgate.told("namespace", "list") == []


def test_applied_it_is_what_is_stored_and_a_second_time_nothing_happens(headgate, write):
    file = write(FILE)
    assert headgate("limits", "apply", file, "--yes").code == 0
    assert headgate.told("limits", "resolve", "visitor", "reports")["limits"] == {
        "rpm": {"per_hour": 3}
    }
    assert headgate.told("limits", "get")["on_unavailable"] == "allow"
    assert headgate("entity", "get", "visitor").code == 5
    events = headgate.told("audit", "--resource", "reports")["events"]
    again = headgate("limits", "apply", file)  # nothing to ask for
    assert (again.code, "Nothing to do." in again.out) == (0, True)
    assert headgate.told("audit", "--resource", "reports")["events"] == events
    assert headgate("limits", "diff", file).code == 0


def test_what_is_exported_is_what_was_applied(headgate, write):
    headgate("limits", "apply", write(FILE), "--yes")
    text = headgate("limits", "export", "default", "team-a", "--owner", "platform").out
    exported, given = yaml.safe_load(text), yaml.safe_load(FILE)
    assert exported["namespaces"]["default"] == given["namespaces"]["default"]
    assert headgate("limits", "plan", write(text, "again.yaml")).out.startswith("No changes")


def test_what_is_changed_is_updated_and_what_is_gone_is_removed(headgate, write):
    headgate("limits", "apply", write(FILE), "--yes")
    headgate("limits", "set", "rpm=1/day", "--entity", "somebody")
    less = changed(
        FILE,
        namespaces__default__resources__reports__limits={"rpm": {"per_minute": 300}},
        namespaces__default__entities__team=None,
        namespaces__default__resources__reports__costs=None,
    )
    done = headgate("limits", "apply", write(less), "--yes")
    assert "    rpm: per_minute 600, burst 900 → per_minute 300" in done.out
    assert "- entity 'team' in 'default'" in done.out
    assert headgate("entity", "get", "team").code == 5
    assert headgate.told("resource", "costs", "show", "reports") == {}
    # What was stored by hand is nobody's business.
    assert headgate.told("limits", "get", "--entity", "somebody")["limits"][0]["capacity"] == 1


def test_a_namespace_that_is_gone_from_the_file_is_deleted_and_can_be_recovered(headgate, write):
    headgate("limits", "apply", write(FILE), "--yes")
    less = yaml.safe_load(FILE)
    del less["namespaces"]["team-a"]
    done = headgate("limits", "apply", write(yaml.safe_dump(less)), "--yes")
    assert "- namespace 'team-a' (can be recovered)" in done.out
    assert [n["name"] for n in headgate.told("namespace", "orphans")] == ["team-a"]


def test_what_others_stored_otherwise_is_refused_and_nothing_is_changed(headgate, write):
    headgate("limits", "set", "rpm=5/day", "--resource", "reports")
    done = headgate("limits", "apply", write(FILE), "--yes")
    assert done.code == 2
    assert "the limits of resource 'reports': stored already" in done.err
    assert headgate("entity", "get", "org").code == 5
    assert [n["name"] for n in headgate.told("namespace", "list")] == ["default"]


def test_what_two_have_written_down_stays_until_both_let_go(headgate, write):
    small = "version: 1\nowner: {}\nnamespaces:\n  default:\n    resources:\n"
    body = "      x: {limits: {rpm: {per_day: 1}}}\n"
    for owner in ("one", "two"):
        assert headgate("limits", "apply", write(small.format(owner) + body), "--yes").code == 0
    empty = "version: 1\nowner: {}\nnamespaces: {{default: }}\n"
    headgate("limits", "apply", write(empty.format("one")), "--yes")
    assert headgate("limits", "get", "--resource", "x").code == 0
    headgate("limits", "apply", write(empty.format("two")), "--yes")
    assert headgate("limits", "get", "--resource", "x").code == 1


def test_a_drift_is_shown_and_repaired(headgate, write):
    file = write(FILE)
    headgate("limits", "apply", file, "--yes")
    headgate("limits", "set", "rpm=1/minute")
    done = headgate("limits", "diff", file)
    assert done.code == 1
    assert "-          per_minute: 1\n" in done.out
    headgate("limits", "apply", file, "--yes")
    assert headgate("limits", "diff", file).code == 0


def test_switches_and_what_the_file_says_do_not_get_in_each_others_way(headgate, write):
    file = write(FILE)
    headgate("limits", "apply", file, "--yes")
    headgate("resource", "disable", "reports")
    assert headgate("limits", "plan", file).out.startswith("No changes")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("version: 2\nowner: x\nnamespaces: {}", "version: 1 was expected"),
        ("version: 1\nnamespaces: {}", "'owner' is a required property"),
        (FILE.replace("per_minute: 60}", "per_minute: -60}"), "-60 is less than the minimum"),
        (FILE.replace("per_minute: 60}", "per_fortnight: 60}"), "'per_fortnight' was unexpected"),
        (FILE.replace("rpm: {per_minute: 60}", "ttl: {per_minute: 60}"), "'ttl' is reserved"),
        (FILE.replace("parent: org", "parent: nobody"), "neither stored nor written down"),
        (FILE.replace("parent: org, ", ""), "cascade needs a parent"),
        (FILE.replace("org: {name", "te#am: {name"), "te#am"),
        (FILE.replace("      org:", "      team: {}\n      org:"), "'team' is there twice"),
        (FILE.replace("parent: org", "parent: team"), "own ancestor"),
        ("a: [", "is not YAML"),
        ("- 1", "is not of type 'object'"),
    ],
)
def test_a_bad_file_changes_nothing_and_says_where_it_is_bad(headgate, write, text, says):
    done = headgate("limits", "apply", write(text), "--yes")
    assert done.code == 2, done.out
    assert says in done.err
    assert headgate.told("namespace", "list") == []


def test_a_file_reads_back_as_it_was_written(tmp_path: Path):
    path = tmp_path / "limits.yaml"
    path.write_text(FILE)
    first = document.load(path)
    path.write_text(document.dump(first.owner, first.namespaces))
    assert document.load(path) == first
