"""Lambda's entry: CloudFormation asks for one record to be created, updated or deleted.

The physical id says which record it is. If it changes, CloudFormation deletes the old one when all
else has succeeded. Whose the record is, and whether it goes with the resource, is in the ledger: a
deletion of what could not be created finds no claim there, and does nothing.
"""

from __future__ import annotations

import json
import logging
import os
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from headgate.limit import Limit
from headgate.provision import (
    Provisioner,
    Record,
    address,
    remove,
    remove_namespace,
    store,
    store_namespace,
)
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
        known = event.get("PhysicalResourceId", "none")
        _answer(event, Outcome(known), failure=f"{type(error).__name__}: {error}")
    else:
        logger.info("done: %s", json.dumps({**what, "record": outcome.physical_id}))
        _answer(event, outcome)


def _carry_out(event: Mapping[str, Any]) -> Outcome:
    kind, properties = event["ResourceType"], event["ResourceProperties"]
    owner = f"{event['StackId']}#{event['LogicalResourceId']}"
    namespace = properties.get("Namespace")
    deleting = event["RequestType"] == "Delete"
    with Provisioner(os.environ["HEADGATE_TABLE"], namespace_id=namespace) as limiter:
        if kind == "Custom::HeadgateNamespace":
            return _namespace(limiter, properties["Name"], owner, deleting=deleting)
        record = _record(kind, properties)
        if deleting:
            remove(limiter, address(record), owner)
        else:
            store(limiter, record, owner)
        return Outcome(json.dumps([namespace or DEFAULT_NAMESPACE, *address(record)]))


def _namespace(limiter: Provisioner, name: str, owner: str, *, deleting: bool) -> Outcome:
    known = json.dumps(["namespace", name])
    if deleting:
        remove_namespace(limiter, name, owner)
        return Outcome(known)
    return Outcome(known, {"NamespaceId": store_namespace(limiter, name, owner).id})


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
