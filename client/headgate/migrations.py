"""The version record for those who manage it: read, migrate, ask for a client."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from headgate import versions
from headgate.core import Core
from headgate.effects import Flow
from headgate.errors import IncompatibleVersion, VersionConflict
from headgate.journal import SYSTEM, Refused, recorded
from headgate.namespaces import opened
from headgate.reads import batch_get
from headgate.schema import NamespaceId, key
from headgate.versions import SCHEMA, Version

Step = Callable[[Core, NamespaceId], Flow[None]]

STEPS: dict[int, Step] = {}
"""What leads from each schema to the next. A step can be repeated: one that was interrupted
begins again.
"""


def get_version(core: Core) -> Flow[Version]:
    """The namespace's version record, also where this client does not fit it."""
    ns = yield from opened(core)
    return (yield from _read(core, ns))[0]


def migrate(core: Core) -> Flow[tuple[int, int]]:
    """Brings the namespace's items to this client's schema, step by step, and says from where
    to where. Nothing is done where they have it already.
    """
    ns = yield from opened(core)
    version, stored = yield from _read(core, ns)
    start = version.schema
    if start > SCHEMA:
        raise IncompatibleVersion(
            f"the namespace has schema {start}, later than this client's {SCHEMA}: there is no "
            "way back; upgrade headgate here"
        )
    while version.schema < SCHEMA or not stored:
        if version.schema < SCHEMA:
            yield from STEPS[version.schema](core, ns)
            after = replace(version, schema=version.schema + 1)
        else:
            after = version
        yield from _write(core, ns, version if stored else None, after)
        version, stored = after, True
    core.version_checked = True
    return start, version.schema


def require_client(core: Core, minimum: str | None) -> Flow[Version]:
    """Asks every client that opens the namespace from now on to be at least this version."""
    if minimum is not None:
        versions.checked_number(minimum)
    ns = yield from opened(core)
    version, stored = yield from _read(core, ns)
    after = replace(version, client_minimum=minimum)
    yield from _write(core, ns, version if stored else None, after)
    return after


def _read(core: Core, ns: NamespaceId) -> Flow[tuple[Version, bool]]:
    core.version_checked = True  # whoever asks for it wants to see it
    place = versions.place(ns)
    items = yield from batch_get(core, [key(*place)], strong=True)
    return versions.read_version(items.get(place)), place in items


def _write(core: Core, ns: NamespaceId, before: Version | None, after: Version) -> Flow[None]:
    put: dict[str, Any] = {"TableName": core.table, "Item": versions.version_item(ns, after)}
    if before is None:
        put["ConditionExpression"] = "attribute_not_exists(PK)"
    else:
        put["ConditionExpression"] = "schema_version = :v"
        put["ExpressionAttributeValues"] = {":v": {"N": str(before.schema)}}
    done = yield from recorded(
        core, ns, SYSTEM, "version_set", [{"Put": put}], before=_told(before), after=_told(after)
    )
    if isinstance(done, Refused):
        raise VersionConflict("the version record was changed by others: read it again")


def _told(version: Version | None) -> Mapping[str, Any] | None:
    if version is None:
        return None
    return {"schema": version.schema, "client_minimum": version.client_minimum}
