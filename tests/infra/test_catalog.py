"""The archive as a table of Athena's."""

from __future__ import annotations

import json
import random

import pytest

from archiver.events import objects, read
from headgate.audit import AuditEvent, audit_item, new_event_id
from headgate_cdk import ArchiveOptions, InvalidOption, RateLimiter
from headgate_cdk.catalog import COLUMNS


@pytest.fixture
def template(stack, template_of):
    RateLimiter(stack, "Limiter", archive=ArchiveOptions(database="headgate", prefix="a/"))
    return template_of(stack)


def test_by_default_there_is_no_catalog(default):
    assert default.count("AWS::Glue::Database") == default.count("AWS::Glue::Table") == 0


def test_the_table_lies_where_the_archiver_writes(template):
    made = template.resolve(template.only("AWS::Glue::Table"))
    settings = made["TableInput"]
    assert made["DatabaseName"] == "headgate"
    assert [key["Name"] for key in settings["PartitionKeys"]] == ["year", "month", "day"]
    where = settings["Parameters"]["storage.location.template"]
    assert where.startswith(settings["StorageDescriptor"]["Location"])
    event = AuditEvent(new_event_id(1_767_268_380_000, random.Random(1)), "alice", "made")
    image = audit_item("0123456789a", event, ttl=1)
    (name,) = objects("a/", [read({"dynamodb": {"OldImage": image}})])
    day = {"year": "2026", "month": "01", "day": "01"}
    for part, value in day.items():
        where = where.replace(f"${{{part}}}", value)
    assert where.endswith(f"/{name.rpartition('/')[0]}/")


def test_the_columns_are_what_a_line_holds():
    event = AuditEvent(
        new_event_id(0, random.Random(1)), "alice", "made", "somebody", "gpt-4", {"a": 1}, {"a": 2}
    )
    line = read({"dynamodb": {"OldImage": audit_item("0123456789a", event, ttl=1)}}).line
    assert set(json.loads(line)) == set(COLUMNS)


def test_partitions_are_computed_with_the_digits_that_names_have(template):
    settings = template.only("AWS::Glue::Table")["TableInput"]["Parameters"]
    assert settings["projection.enabled"] == "true"
    assert settings["projection.month.digits"] == settings["projection.day.digits"] == "2"


def test_a_name_that_glue_would_fold_is_refused():
    with pytest.raises(InvalidOption, match=r"archive.database is 'Audit': must be lowercase"):
        ArchiveOptions(database="Audit")
