"""Named operations: what each takes of which limit is configuration, stored with the resource.

limiter.set_costs({"export": {"rpm": 1, "units": 100}}, resource="reports")
with limiter.acquire("acme", "reports", "export"): ...
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, TypeAlias, cast

from headgate import config
from headgate.bucket import Millitokens
from headgate.core import Core
from headgate.effects import Flow
from headgate.errors import ValidationError
from headgate.limit import LimitSet, as_amounts, whole
from headgate.records import Costs, config_keys
from headgate.schema import BucketRef

Consume: TypeAlias = Mapping[str, int] | str | int
"""Amounts by limit, the name of an operation that stands for them, or a number: of every limit."""

MAX_OPERATIONS = 200
_OPERATION = re.compile(r"[A-Za-z][A-Za-z0-9._:/-]{0,63}")


def checked_costs(given: object) -> Costs:
    """The costs, checked."""
    if not isinstance(given, Mapping) or len(given) > MAX_OPERATIONS:
        raise ValidationError(
            f"costs must map at most {MAX_OPERATIONS} operations to amounts, like "
            f"{{'export': {{'rpm': 1}}}}: {given!r}"
        )
    for operation, taken in given.items():
        checked_operation(operation)
        as_amounts(f"costs[{operation!r}]", taken)
    return {operation: dict(taken) for operation, taken in given.items()}


def checked_operation(name: object) -> str:
    """The name of an operation, checked."""
    if not isinstance(name, str) or not _OPERATION.fullmatch(name):
        raise ValidationError(
            f"an operation is a letter, then up to 63 letters, digits or . _ : / -: {name!r}"
        )
    return name


def checked_consume(consume: object) -> None:
    """What can be known to be wrong before anything is read."""
    if isinstance(consume, str):
        checked_operation(consume)
    elif isinstance(consume, int):
        whole("consume", consume)
    else:
        as_amounts("consume", consume)


def spelled_out(consume: Consume) -> bool:
    """Whether the amounts are there, and not in the configuration."""
    return not isinstance(consume, str | int)


def amounts(
    core: Core,
    ref: BucketRef,
    consume: Consume,
    explicit: LimitSet | None = None,
    *,
    strong: bool = False,
) -> Flow[dict[str, Millitokens]]:
    """The amounts that are meant. An operation's come from the cached configuration; one that it
    does not have is looked for once more before it is refused.
    """
    if isinstance(consume, int):
        limits = explicit or (yield from _limits(core, ref, strong=strong))
        return as_amounts("consume", dict.fromkeys(limits.names, consume))
    if not isinstance(consume, str):
        return as_amounts("consume", consume)
    known = _cached(core, ref)
    if known is None:
        yield from config.warm(core, ref)
        known = _cached(core, ref)
    if known is None or consume not in known:
        yield from config.warm(core, ref, strong=True)
        known = _cached(core, ref) or {}
    if consume not in known:
        listed = ", ".join(sorted(known)) or "none"
        raise ValidationError(
            f"no operation {consume!r} on resource {ref.resource!r}: the operations here are "
            f"{listed}"
        )
    return as_amounts(f"costs[{consume!r}]", known[consume])


def _limits(core: Core, ref: BucketRef, *, strong: bool) -> Flow[LimitSet]:
    """The limits in force, as far as is known here without a read. What is not up to date
    makes no wrong draw: the bucket knows better, and refuses limits that it does not have.
    """
    view = core.views.get(ref)
    if view is not None and not strong and config.known(core, ref, core.now()) is None:
        return view.bucket.limits
    return (yield from config.resolve(core, ref, strong=strong)).limits


def _cached(core: Core, ref: BucketRef) -> Costs | None:
    entry = core.records.get(config_keys(ref.ns, None, ref.resource))
    if entry is None or entry[0] <= core.now() - int(core.settings.config_ttl * 1000):
        return None
    return entry[1].costs


def told(costs: Costs) -> dict[str, Any]:
    """The same as plain data."""
    return {operation: dict(cast("Mapping[str, Any]", taken)) for operation, taken in costs.items()}
