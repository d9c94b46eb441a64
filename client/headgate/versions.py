"""Which shape a namespace's items have, and which clients may use them.

| record  | PK            | SK         |
|---------|---------------|------------|
| version | {ns}/SYSTEM#  | #VERSION   |

Read once by each limiter, with the first other read of the namespace: it costs no request.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from headgate.core import Core
from headgate.effects import Item
from headgate.errors import IncompatibleVersion, ValidationError
from headgate.records import Place
from headgate.schema import NamespaceId, in_namespace, key, pk_system

CLIENT = "0.1.0"
"""This client."""

SCHEMA = 1
"""The shape of items that this client reads and writes."""

SK = "#VERSION"
_NUMBER = re.compile(r"\d+(\.\d+){0,3}")


@dataclass(frozen=True, slots=True)
class Version:
    """What a namespace says of itself. `client_minimum` is the oldest client that may open it."""

    schema: int = SCHEMA
    client_minimum: str | None = None


def place(ns: NamespaceId) -> Place:
    """Where the record is."""
    return pk_system(ns), SK


def version_item(ns: NamespaceId, version: Version) -> Item:
    """The item that stores it."""
    pk, sk = place(ns)
    item: Item = {
        **key(pk, sk),
        **in_namespace(ns, pk),
        "schema_version": {"N": str(version.schema)},
    }
    if version.client_minimum is not None:
        item["client_minimum"] = {"S": version.client_minimum}
    return item


def read_version(item: Mapping[str, Any] | None) -> Version:
    """The version that an item stores. A namespace that says nothing has the first schema."""
    if not item:
        return Version(1)
    minimum = item.get("client_minimum")
    return Version(int(item["schema_version"]["N"]), minimum["S"] if minimum else None)


def checked_number(value: object) -> str:
    """A version number such as 0.2 or 1.10.3, checked."""
    if not isinstance(value, str) or not _NUMBER.fullmatch(value):
        raise ValidationError(f"a version is up to four numbers with dots between: {value!r}")
    return value


def ordered(number: str) -> tuple[int, ...]:
    """A version number as it compares: 1.10 is after 1.9."""
    parts = [int(part) for part in number.split(".")]
    return (*parts, *(0,) * (4 - len(parts)))


def pending(core: Core, keys: Sequence[Item]) -> Place | None:
    """The record's place, if it is still to be read and a read of these keys can bring it."""
    if core.version_checked or core.ns is None:
        return None
    if keys and not keys[0]["PK"]["S"].startswith(f"{core.ns}/"):
        return None
    return place(core.ns)


def verify(core: Core, item: Mapping[str, Any] | None) -> None:
    """IncompatibleVersion if this client must not touch the namespace."""
    found = read_version(item)
    where = f"the namespace {core.settings.namespace!r} of table {core.table!r}"
    if found.schema > SCHEMA:
        raise IncompatibleVersion(
            f"{where} has schema {found.schema}, and this client (headgate {CLIENT}) knows up to "
            f"{SCHEMA}: upgrade headgate here"
        )
    if found.schema < SCHEMA:
        raise IncompatibleVersion(
            f"{where} has schema {found.schema}, and this client (headgate {CLIENT}) needs "
            f"{SCHEMA}: run `headgate migrate`"
        )
    if found.client_minimum is not None and ordered(found.client_minimum) > ordered(CLIENT):
        raise IncompatibleVersion(
            f"{where} asks for headgate {found.client_minimum} or later, and this is {CLIENT}: "
            "upgrade headgate here"
        )
    core.version_checked = True
