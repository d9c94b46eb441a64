"""Expired audit events as lines of the archive: what to write, and under which names.

An object is named after the first event in it. Lambda delivers a batch that failed again from its
first record, whole or in parts, and never together with records before it. So what a failed try
wrote has the name of what the next one writes, which replaces it: nothing is there twice.
"""

from __future__ import annotations

import gzip
import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

# Keys and expiry are the table's. The namespace and the event's id stay, under their own names.
_OF_THE_TABLE = frozenset(
    {"PK", "SK", "GSI1PK", "GSI1SK", "GSI2PK", "GSI2SK", "GSI3PK", "GSI3SK", "GSI4PK", "GSI4SK"}
    | {"ttl"}
)
_AUDIT = "#AUDIT#"
_PARSED = ("before", "after")


class BadRecord(ValueError):
    """A record that holds no event."""


@dataclass(frozen=True, slots=True)
class Expired:
    """An event as a line, the day it belongs to, and the name of an object that it begins."""

    day: str
    name: str
    line: str


def read(record: Mapping[str, Any]) -> Expired:
    """The event in a record. Whatever its attributes are, they are kept."""
    body = record.get("dynamodb", {})
    image = body.get("OldImage")
    if not image:
        raise BadRecord("the record holds no old image: the stream must carry it")
    pk, sk = image["PK"]["S"], image["SK"]["S"]
    event_id = sk.removeprefix(_AUDIT)
    attributes = {name: _plain(value) for name, value in image.items() if name not in _OF_THE_TABLE}
    for name in _PARSED:
        attributes[name] = _parsed(attributes.get(name))
    at = _time(event_id, body)
    event = {
        **attributes,
        "namespace_id": pk.partition("/")[0],
        "event_id": event_id,
        "at": at.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
    }
    told_apart = hashlib.blake2b(f"{pk}|{sk}".encode(), digest_size=6).hexdigest()
    return Expired(
        at.strftime("year=%Y/month=%m/day=%d"),
        f"{at.strftime('%Y%m%dT%H%M%S')}-{told_apart}",
        json.dumps(event, sort_keys=True, separators=(",", ":")),
    )


def objects(prefix: str, events: Iterable[Expired]) -> dict[str, bytes]:
    """The objects that hold these events, by name: one for each day."""
    by_day: dict[str, list[Expired]] = {}
    for event in events:
        by_day.setdefault(event.day, []).append(event)
    return {
        f"{prefix}{day}/{found[0].name}.jsonl.gz": _compressed(found)
        for day, found in by_day.items()
    }


def _compressed(events: Iterable[Expired]) -> bytes:
    text = "".join(f"{event.line}\n" for event in events)
    return gzip.compress(text.encode(), mtime=0)  # the same events, the same object


def _time(event_id: str, body: Mapping[str, Any]) -> datetime:
    """When it happened, by its id; should that not tell, when it expired."""
    try:
        return datetime.fromisoformat(event_id.rpartition("-")[0]).astimezone(UTC)
    except ValueError:
        return datetime.fromtimestamp(float(body["ApproximateCreationDateTime"]), UTC)


def _parsed(value: Any) -> Any:
    """What was and what is are stored as text: in the archive they are columns of their own."""
    try:
        return json.loads(value) if isinstance(value, str) else value
    except ValueError:
        return value


def _plain(typed: Mapping[str, Any]) -> Any:
    """A value without its type. Binary stays as Lambda's events have it, in base 64."""
    ((kind, value),) = typed.items()
    match kind:
        case "N":
            return _number(value)
        case "NS":
            return [_number(text) for text in sorted(value)]
        case "SS":
            return sorted(value)
        case "NULL":
            return None
        case "L":
            return [_plain(inner) for inner in value]
        case "M":
            return {name: _plain(inner) for name, inner in value.items()}
        case _:
            return value


def _number(text: str) -> int | str:
    """A whole number, or the text: 38 digits do not survive as a float."""
    try:
        return int(text)
    except ValueError:
        return text
