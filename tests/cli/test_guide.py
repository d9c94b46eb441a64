"""docs/guide/operate.md is a day of operating: its commands run, and print what it says."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from headgate import local
from headgate.schema import EntityId, NamespaceId, Resource
from headgate.usage import SnapshotRef
from tests.cli.shell import ROOT, File, Shell, alike, steps
from tests.limiters import boto_session

PAGE = ROOT / "docs/guide/operate.md"
DAY = datetime(2026, 1, 30, tzinfo=UTC)
# A working day: units by the hour.
UNITS = [300, 200, 100, 0, 0, 200, 900, 2400, 5200, 7100, 8300, 7900]
UNITS += [6100, 7700, 8600, 9100, 8800, 6900, 4300, 2700, 1900, 1200, 800, 400]


def count(endpoint_url):
    """The usage that an aggregator would have counted on that day."""
    client = boto_session().client("dynamodb", endpoint_url=endpoint_url, region_name="us-east-1")
    name = {"PK": {"S": "_/SYSTEM#"}, "SK": {"S": "#NAMESPACE#default"}}
    ns = client.get_item(TableName="limits", Key=name)["Item"]["namespace_id"]["S"]
    for hour, units in enumerate(UNITS):
        if not units:
            continue
        at = DAY + timedelta(hours=hour)
        ref = SnapshotRef.at(NamespaceId(ns), EntityId("acme"), Resource("reports"), "hourly", at)
        counters = {"u_rpm": units // 100, "u_units": units}
        item = {**ref.key, **ref.identity(), "acquires": {"N": str(units // 100)}}
        item |= {name: {"N": str(amount * 1000)} for name, amount in counters.items()}
        client.put_item(TableName="limits", Item=item)
    client.close()


@pytest.fixture
def shell(tmp_path):
    made = Shell(
        tmp_path,
        HEADGATE_LOCAL=str(tmp_path / "engine"),
        HEADGATE_ENGINE=str(ROOT / ".engine/bin/ministack"),
    )
    yield made
    made.close()
    local.down(tmp_path / "engine")


def test_a_day_of_operating_goes_as_the_page_says(shell, tmp_path):
    counted = False
    for step in steps(PAGE):
        if isinstance(step, File):
            (tmp_path / step.name).write_text(step.content)
            continue
        if "headgate usage" in step.text and not counted:
            count(shell.run("echo $AWS_ENDPOINT_URL").strip())
            counted = True
        printed = shell.run(step.text)
        assert alike(step.prints, printed), f"line {step.line}: {step.text}\n{printed}"
    assert (tmp_path / "usage.svg").read_text().startswith("<svg")
