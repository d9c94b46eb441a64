"""Lambda's entry: CloudFormation asks for one record to be created, updated or deleted.

The physical id says whose the record is and which one it is. What was there already, equal to
what is wanted, is `found` and stays when the resource goes; what was `made` goes with it. A
creation that failed is `refused`: CloudFormation asks to delete it, and nothing is done.
"""

from __future__ import annotations

import json
import logging
import os
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, cast

from headgate import SyncRateLimiter
from headgate.limit import Limit
from headgate.provision import Record, Registry, address, apply, current, plan
from headgate.records import Entity, LimitsConfig

logger = logging.getLogger()
logger.setLevel(os.environ.get("POWERTOOLS_LOG_LEVEL", "INFO"))

DEFAULT_NAMESPACE = "default"


@dataclass(frozen=True)
class Outcome:
    """What CloudFormation is told: the id to know the record by, and its attributes."""

    physical_id: str
    data: Mapping[str, str] = field(default_factory=dict)


def handler(event: Mapping[str, Any], _context: object) -> None:
    """Carry out the request and answer, whatever happens: silence would block the stack."""
    what = {key: event[key] for key in ("RequestType", "LogicalResourceId", "ResourceType")}
    try:
        outcome = _carry_out(event)
    except Exception as error:
        logger.exception("failed: %s", json.dumps(what))
        known = event.get("PhysicalResourceId", f"refused:{event['LogicalResourceId']}")
        _answer(event, Outcome(known), failure=f"{type(error).__name__}: {error}")
    else:
        logger.info("done: %s", json.dumps({**what, "as": outcome.physical_id}))
        _answer(event, outcome)


def _carry_out(event: Mapping[str, Any]) -> Outcome:
    kind, properties = event["ResourceType"], event["ResourceProperties"]
    physical_id = event.get("PhysicalResourceId", "")
    deleting = event["RequestType"] == "Delete"
    namespace = properties.get("Namespace")
    with SyncRateLimiter(os.environ["HEADGATE_TABLE"], namespace_id=namespace) as limiter:
        if kind == "Custom::HeadgateNamespace":
            registry = cast("Registry", limiter)
            register = _unregister if deleting else _register
            return register(registry, properties["Name"], physical_id)
        record = _record(kind, properties)
        if deleting:
            return _delete(limiter, record, physical_id)
        return _store(limiter, record, namespace or DEFAULT_NAMESPACE, physical_id)


def _store(limiter: SyncRateLimiter, record: Record, namespace: str, physical_id: str) -> Outcome:
    where = address(record)
    label = json.dumps([namespace, *where])
    # Another address is another record: CloudFormation deletes the old one afterwards.
    known = physical_id.partition(":")[2] == label
    changes = plan([record], current(limiter, [where]), owned=[where] if known else ())
    apply(limiter, changes)
    if known:
        return Outcome(physical_id)
    return Outcome(f"{'made' if changes else 'found'}:{label}")


def _delete(limiter: SyncRateLimiter, record: Record, physical_id: str) -> Outcome:
    if physical_id.startswith("made:"):
        where = address(record)
        apply(limiter, plan([], current(limiter, [where]), owned=[where]))
    return Outcome(physical_id)


def _register(registry: Registry, name: str, physical_id: str) -> Outcome:
    found = registry.get_namespace(name)
    namespace = found or registry.register_namespace(name)
    data = {"NamespaceId": namespace.id}
    label = json.dumps(["namespace", name])
    if physical_id.partition(":")[2] == label:
        return Outcome(physical_id, data)
    return Outcome(f"{'found' if found else 'made'}:{label}", data)


def _unregister(registry: Registry, name: str, physical_id: str) -> Outcome:
    if physical_id.startswith("made:") and registry.get_namespace(name):
        registry.delete_namespace(name)
    return Outcome(physical_id)


def _record(kind: str, properties: Mapping[str, Any]) -> Record:
    """The record that the properties describe. CloudFormation has made text of every number."""
    if kind == "Custom::HeadgateEntity":
        return Entity(
            properties["EntityId"],
            properties.get("ParentId"),
            properties.get("Cascade") == "true",
            properties.get("Name"),
            dict(properties.get("Metadata", {})),
        )
    return LimitsConfig(
        properties.get("EntityId"),
        properties.get("Resource"),
        tuple(
            Limit(
                limit["Name"],
                int(limit["Capacity"]),
                int(limit["RefillAmount"]),
                int(limit["RefillPeriod"]),
            )
            for limit in properties.get("Limits", [])
        ),
        properties.get("OnUnavailable"),
    )


def _answer(event: Mapping[str, Any], outcome: Outcome, *, failure: str | None = None) -> None:
    body = {
        "Status": "SUCCESS" if failure is None else "FAILED",
        "Reason": failure or "",
        "PhysicalResourceId": outcome.physical_id,
        "Data": outcome.data,
        **{key: event[key] for key in ("StackId", "RequestId", "LogicalResourceId")},
    }
    request = urllib.request.Request(  # noqa: S310  (the address is CloudFormation's own)
        event["ResponseURL"],
        data=json.dumps(body).encode(),
        method="PUT",
        # S3's signature of the address covers an empty content type.
        headers={"Content-Type": ""},
    )
    with urllib.request.urlopen(request, timeout=30) as response:  # noqa: S310
        response.read()
