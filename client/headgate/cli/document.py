"""The file that limits are written down in: YAML to records, and records to YAML."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

import jsonschema
import yaml

from headgate.costs import checked_costs
from headgate.errors import ValidationError
from headgate.limit import Limit, LimitSet
from headgate.provision import OperationCosts, Record
from headgate.records import Entity, LimitsConfig
from headgate.schema import checked_entity, checked_resource

_PERIODS = {"per_second": 1, "per_minute": 60, "per_hour": 3_600, "per_day": 86_400}
FORMAT = 1


@dataclass(frozen=True, slots=True)
class Document:
    """A file's content: who has it written down, and the records of each namespace."""

    owner: str
    namespaces: Mapping[str, tuple[Record, ...]]


@cache
def schema() -> dict[str, Any]:
    """The JSON Schema of the file."""
    text = files("headgate.cli").joinpath("limits.schema.json").read_text()
    found: dict[str, Any] = json.loads(text)
    return found


def load(path: Path) -> Document:
    """The file, if all of it is right. What is not is named with its place."""
    try:
        content = yaml.load(path.read_text(), _Strict)  # noqa: S506 - a safe loader
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ValidationError(f"{path} is not YAML: {error}") from None
    checker = jsonschema.Draft202012Validator(schema())
    problems = sorted(checker.iter_errors(content), key=lambda e: [str(p) for p in e.absolute_path])
    if problems:
        shown = "\n".join(f"  {_place(problem)}: {problem.message}" for problem in problems[:20])
        raise ValidationError(f"{path} is not as the schema wants it:\n{shown}")
    try:
        return Document(
            content["owner"],
            {name: tuple(_records(body or {})) for name, body in content["namespaces"].items()},
        )
    except ValidationError as error:
        raise ValidationError(f"{path}: {error}") from None


def dump(owner: str, namespaces: Mapping[str, Iterable[Record]]) -> str:
    """The file that has these records written down."""
    content = {
        "version": FORMAT,
        "owner": owner,
        "namespaces": {name: _body(records) for name, records in namespaces.items()},
    }
    text: str = yaml.safe_dump(content, sort_keys=False, allow_unicode=True, width=100)
    return text


class _Strict(yaml.SafeLoader):
    """Refuses a key that is there twice: the first would be lost without a word."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:  # noqa: FBT001, FBT002
        seen: set[Any] = set()
        for key_node, _ in node.value:
            key = self.construct_object(key_node, deep=True)
            if key in seen:
                line = key_node.start_mark.line + 1
                raise yaml.YAMLError(f"line {line}: {key!r} is there twice")
            seen.add(key)
        return super().construct_mapping(node, deep)


def _place(problem: jsonschema.ValidationError) -> str:
    return ".".join(str(part) for part in problem.absolute_path) or "the file"


def _records(body: Mapping[str, Any]) -> Iterator[Record]:
    system = body.get("system") or {}
    if system:
        limits = _limits(system["limits"]) if "limits" in system else ()
        yield LimitsConfig(None, None, limits, system.get("on_unavailable"))
    for name, resource in (body.get("resources") or {}).items():
        what = checked_resource(name)
        if "limits" in resource:
            yield LimitsConfig(None, what, _limits(resource["limits"]))
        if "costs" in resource:
            yield OperationCosts(what, checked_costs(resource["costs"]))
    for name, entity in (body.get("entities") or {}).items():
        yield from _entity(checked_entity(name), entity or {})


def _entity(who: str, body: Mapping[str, Any]) -> Iterator[Record]:
    if body.get("recorded", True):
        if body.get("cascade") and "parent" not in body:
            raise ValidationError(f"entity {who!r}: cascade needs a parent")
        yield Entity(
            who,
            body.get("parent"),
            body.get("cascade", False),
            body.get("name"),
            body.get("metadata", {}),
        )
    if "limits" in body:
        yield LimitsConfig(who, None, _limits(body["limits"]))
    for name, resource in body.get("resources", {}).items():
        yield LimitsConfig(who, checked_resource(name), _limits(resource["limits"]))


def _limits(body: Mapping[str, Mapping[str, int]]) -> tuple[Limit, ...]:
    return LimitSet(_limit(name, fields) for name, fields in body.items()).limits


def _limit(name: str, fields: Mapping[str, int]) -> Limit:
    for period, seconds in _PERIODS.items():
        if period in fields:
            amount = fields[period]
            return Limit(name, fields.get("burst", amount), amount, seconds)
    return Limit(name, fields["capacity"], fields["refill_amount"], fields["refill_period"])


def _body(records: Iterable[Record]) -> dict[str, Any]:
    system: dict[str, Any] = {}
    resources: dict[str, Any] = {}
    entities: dict[str, Any] = {}
    recorded: set[str] = set()
    for record in records:
        if isinstance(record, Entity):
            recorded.add(record.entity_id)
            entities.setdefault(record.entity_id, {}).update(_fields(record))
        elif isinstance(record, OperationCosts):
            costs = {name: dict(taken) for name, taken in sorted(record.costs.items())}
            resources.setdefault(record.resource, {})["costs"] = costs
        elif record.entity_id is not None:
            body = entities.setdefault(record.entity_id, {})
            if record.resource is not None:
                body = body.setdefault("resources", {}).setdefault(record.resource, {})
            body["limits"] = _limits_body(record.limits)
        elif record.resource is not None:
            resources.setdefault(record.resource, {})["limits"] = _limits_body(record.limits)
        else:
            system = {"limits": _limits_body(record.limits)} if record.limits else {}
            if record.on_unavailable is not None:
                system["on_unavailable"] = record.on_unavailable
    for who, body in entities.items():
        if who not in recorded:
            body["recorded"] = False
    parts = {"system": system, "resources": resources, "entities": entities}
    return {name: part for name, part in parts.items() if part}


def _fields(entity: Entity) -> dict[str, Any]:
    fields = {
        "parent": entity.parent_id,
        "cascade": entity.cascade or None,
        "name": entity.name,
        "metadata": dict(entity.metadata) or None,
    }
    return {name: value for name, value in fields.items() if value is not None}


def _limits_body(limits: Iterable[Limit]) -> dict[str, Any]:
    return {limit.name: limit_body(limit) for limit in limits}


def limit_body(limit: Limit) -> dict[str, int]:
    """A limit as the file has it, in the shortest form."""
    for period, seconds in _PERIODS.items():
        if limit.refill_period == seconds and limit.refill_amount:
            burst = {} if limit.capacity == limit.refill_amount else {"burst": limit.capacity}
            return {period: limit.refill_amount, **burst}
    return {
        "capacity": limit.capacity,
        "refill_amount": limit.refill_amount,
        "refill_period": limit.refill_period,
    }
