"""The pages of the documentation: their code runs, their links lead somewhere."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from types import SimpleNamespace

import pytest

from headgate import SyncRateLimiter, shards
from headgate.schema import BucketRef
from tests.docs.examples import ROOT, alike, python_blocks

# Pages whose code needs more than a table: tests of their own run it.
ELSEWHERE = {"api.md", "authorizer.md", "construct.md", "usage.md"}
GUIDE = sorted(path.name for path in (ROOT / "docs/guide").glob("*.md"))
PAGES = [ROOT / "README.md", ROOT / "CHANGELOG.md", *(ROOT / "docs").rglob("*.md")]


def given(table):
    """What a reader has of their own: a model, and more traffic than a test."""

    def a_rush(entity_id, resource):
        with SyncRateLimiter(table) as limiter:
            limiter.available(entity_id, resource)
            ref = BucketRef(limiter._core.ns, entity_id, resource)
            for shard in (0, 0, 1):
                bucket = limiter._core.views.get(ref, shard).bucket
                limiter._driver.run(shards.split(limiter._core, ref, bucket))

    return {
        "a_rush": a_rush,
        "call_the_model": lambda prompt: SimpleNamespace(text=prompt.upper(), tokens=650),
        "prompt": "one two three",
    }


@pytest.mark.parametrize("page", [name for name in GUIDE if name not in ELSEWHERE])
def test_the_code_of_a_page_runs_from_top_to_bottom(page, table):
    names = given(table)
    try:
        for block in python_blocks(f"docs/guide/{page}"):
            block.run(names)
    finally:
        for value in names.values():
            if isinstance(value, SyncRateLimiter):
                value.close()


def test_pages_that_are_run_elsewhere_are():
    tests = [path.read_text() for path in (ROOT / "tests").rglob("test_*.py")]
    for page in ELSEWHERE & set(GUIDE):
        assert any(f"docs/guide/{page}" in text for text in tests), page


def test_every_page_of_the_guide_is_in_the_readme():
    text = (ROOT / "README.md").read_text()
    assert [page for page in GUIDE if f"(docs/guide/{page})" not in text] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_to_files_and_headings_that_are_there(page):
    for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text()):
        if target.startswith("https://"):
            continue
        path, _, heading = target.partition("#")
        file = (page.parent / path).resolve() if path else page
        assert file.exists(), target
        if heading:
            titles = re.findall(r"^#+ (.+)$", file.read_text(), re.MULTILINE)
            assert heading in {re.sub(r"[^\w -]", "", t.lower()).replace(" ", "-") for t in titles}


@pytest.mark.parametrize("picture", sorted((ROOT / "docs").rglob("*.svg")), ids=lambda p: p.name)
def test_a_picture_is_well_formed_and_says_what_it_shows(picture):
    root = ET.fromstring(picture.read_text())  # noqa: S314 - our own file
    space = "{http://www.w3.org/2000/svg}"
    assert root.tag == f"{space}svg"
    assert root.find(f"{space}title").text
    assert root.find(f"{space}desc").text


@pytest.mark.parametrize(
    ("said", "printed", "same"),
    [
        ("retry after 720.0 s", "retry after 719.4 s", True),
        ("3 left", "3 left", True),
        ("3 left", "4 left", False),
        ("reset 1767225600", "reset 1899999999", True),
        ("a 1", "b 1", False),
        ("1", "1 2", False),
    ],
)
def test_what_a_page_says_is_compared_but_for_the_time_that_passes(said, printed, same):
    assert alike(said, printed) is same
