"""Rules about the repository itself that nothing else would notice being broken."""

from __future__ import annotations

import json
import re
import subprocess
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

# Written in pieces, or this file would be the first to break the rule.
HOSTS = [
    "py" + "pi.org",
    "python" + "hosted.org",
    "np" + "mjs.org",
    "np" + "mjs.com",
    "yarn" + "pkg.com",
]
MACHINE_PATHS = [
    "/ro" + "ot/",
    "/wo" + "rk/",
    "/ho" + "me/",
    "/Us" + "ers/",
    "/op" + "t/py",
    "/op" + "t/wh",
    "/tm" + "p/[a-z]",
    "file" + "://",
]


def tracked_files() -> list[Path]:
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True)
    return [ROOT / name for name in listed.stdout.decode().split("\0") if name]


def tracked_text() -> dict[str, str]:
    texts = {}
    for path in tracked_files():
        if path.is_file():
            texts[str(path.relative_to(ROOT))] = path.read_text(errors="replace")
    return texts


def test_the_folder_constructs_does_not_hide_the_package_of_that_name():
    import constructs

    assert not (ROOT / "constructs/__init__.py").exists()
    assert ROOT / "constructs" not in Path(constructs.__file__).parents


@pytest.mark.parametrize("what", HOSTS + MACHINE_PATHS)
def test_no_tracked_file_names_a_registry_or_a_path_of_one_machine(what):
    # An ARN or URL path may contain such a word; a machine's path starts a word.
    pattern = re.compile(rf"(?<![\w.}}\-]){what}" if what.startswith("/") else re.escape(what))
    assert [name for name, text in tracked_text().items() if pattern.search(text)] == []


def test_the_lock_file_pins_hashes_and_no_hosts():
    packages = json.loads((ROOT / "package-lock.json").read_text())["packages"]
    installed = {name: package for name, package in packages.items() if name}
    assert [name for name, package in installed.items() if "resolved" in package] == []
    assert [name for name, package in installed.items() if "integrity" not in package] == []


@pytest.mark.parametrize("name", ["constraints.txt", "constraints-engine.txt"])
def test_constraints_are_exact_versions_and_nothing_else(name):
    lines = (ROOT / name).read_text().splitlines()
    pins = [line for line in lines if not line.startswith("#")]
    assert pins
    assert [pin for pin in pins if not re.fullmatch(r"[A-Za-z0-9._-]+==[A-Za-z0-9.+!]+", pin)] == []


def test_everything_that_is_installed_is_pinned():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = [*project["dependencies"]]
    for extra in project["optional-dependencies"].values():
        wanted += extra
    pins = {
        re.sub(r"[-_.]+", "-", line.split("==")[0]).lower()
        for line in (ROOT / "constraints.txt").read_text().splitlines()
    }
    names = {re.match(r"[A-Za-z0-9._-]+", requirement)[0].lower() for requirement in wanted}
    assert names - pins == set()


def test_every_decision_is_in_the_index_and_has_its_sections():
    folder = ROOT / "docs/adr"
    index = (folder / "README.md").read_text()
    decisions = sorted(folder.glob("[0-9]*.md"))
    assert decisions
    for decision in decisions:
        text = decision.read_text()
        title = re.match(rf"# {decision.name[:4]}: (.+)\n", text)
        assert title, f"{decision.name} does not start with its number and title"
        row = f"| [{decision.name[:4]}]({decision.name}) | {title[1]} |"
        assert row in index
        sections = re.findall(r"^## (.+)$", text, re.MULTILINE)
        assert sections == ["Context", "Decision", "Consequences", "Alternatives"]
        # Each alternative says why it was not taken.
        alternatives = re.split(r"^- ", text.split("## Alternatives")[1], flags=re.MULTILINE)[1:]
        assert alternatives
        assert [entry for entry in alternatives if "Rejected" not in entry] == []
    linked = set(re.findall(r"\]\((\d{4}[^)]+)\)", index))
    assert linked == {decision.name for decision in decisions}


def test_continuous_integration_runs_the_checks_and_the_tests():
    script = ROOT / ".ci/run"
    assert script.stat().st_mode & 0o111
    commands = [
        line for line in script.read_text().splitlines() if line and not line.startswith("#")
    ]
    assert commands == ["set -euo pipefail", 'cd "$(dirname "$0")/.."', "make check test"]

    planned = subprocess.run(
        ["make", "--dry-run", "check", "test"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    for command in ("ruff check", "ruff format --check", "mypy", "-m pytest"):
        assert command in planned.stdout


def test_the_readme_starts_with_the_two_commands_that_matter():
    first_block = (ROOT / "README.md").read_text().split("```")[1]
    assert re.findall(r"^make (\w+)", first_block, re.MULTILINE)[:2] == ["demo", "test"]
