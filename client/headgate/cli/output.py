"""Tables, and the words in them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from datetime import datetime
from typing import Any

from rich import box
from rich.table import Table
from rich.text import Text

from headgate.bucket import LimitStatus
from headgate.limit import Limit
from headgate.records import Entity, LimitsConfig

_PERIODS = {1: "second", 60: "minute", 3_600: "hour", 86_400: "day"}
_MODES = {"normal": "", "disabled": "bold red", "bypass": "bold yellow"}


def grid(title: str | None, *columns: str, right: Sequence[str] = ()) -> Table:
    """An empty table."""
    table = Table(title=title, box=box.SIMPLE_HEAD, title_justify="left", title_style="bold")
    for column in columns:
        table.add_column(column, justify="right" if column in right else "left", no_wrap=True)
    return table


def limit_text(limit: Limit | LimitStatus) -> str:
    """`600 a minute, burst 1000`."""
    if not limit.refill_amount:
        return f"{limit.capacity:,}, never refilled"
    period = _PERIODS.get(limit.refill_period, f"{limit.refill_period} s")
    rate = f"{limit.refill_amount:,} / {period}"
    return rate if limit.capacity == limit.refill_amount else f"{rate}, burst {limit.capacity:,}"


def duration(seconds: float | None) -> str:
    """A while, in the largest unit that fits."""
    if seconds is None:
        return "never"
    for size, unit in ((86_400, "d"), (3_600, "h"), (60, "min")):
        if seconds >= size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds:.1f} s" if seconds else "now"


def gauge(available: int, capacity: int, width: int = 20) -> Text:
    """How full a bucket is, as a bar."""
    part = max(0.0, min(1.0, available / capacity))
    full = round(part * width)
    style = "green" if part > 0.5 else "yellow" if part > 0.1 else "red"
    return Text.assemble(("█" * full, style), ("░" * (width - full), "dim"))


def mode_text(mode: str) -> Text:
    """The mode, loud unless it is normal."""
    return Text(mode, style=_MODES.get(mode, ""))


def statuses(limits: Iterable[LimitStatus], *, asked: bool = False) -> Table:
    """Where limits stand."""
    columns = ["limit", "available", "capacity", "", "rate", "full in"]
    table = grid(None, *columns, right=("available", "capacity", "full in"))
    for status in limits:
        name = Text(status.name, style="bold red" if asked and status.short else "")
        table.add_row(
            name,
            f"{status.available:,}",
            f"{status.capacity:,}",
            gauge(status.available, status.capacity),
            limit_text(status),
            duration(status.full_after),
        )
    return table


def level_text(config: LimitsConfig) -> str:
    """Whose configuration it is."""
    if config.entity_id is None:
        return "system" if config.resource is None else f"resource {config.resource}"
    on = "all resources" if config.resource is None else config.resource
    return f"{config.entity_id} on {on}"


def configs(found: Iterable[LimitsConfig]) -> Table:
    """What is stored at some levels."""
    table = grid(None, "level", "limits", "mode", "operations", right=())
    for config in found:
        limits = "\n".join(f"{limit.name}: {limit_text(limit)}" for limit in config.limits)
        table.add_row(
            level_text(config),
            limits or "–",
            mode_text(config.mode),
            ", ".join(config.costs) or "–",
        )
    return table


def config_data(config: LimitsConfig) -> dict[str, Any]:
    """The same for programs."""
    return {**asdict(config), "level": config.level, "costs": plain(config.costs)}


def entity_data(entity: Entity) -> dict[str, Any]:
    """An entity for programs."""
    return {**asdict(entity), "metadata": dict(entity.metadata)}


def plain(value: Any) -> Any:
    """Mappings of whatever kind as dictionaries."""
    return json.loads(json.dumps(value, default=dict))


def pairs(title: str | None, values: Mapping[str, Any]) -> Table:
    """A few named values, one under the other."""
    table = Table(title=title, box=None, show_header=False, title_justify="left")
    table.add_column(style="dim")
    table.add_column()
    for name, value in values.items():
        if value not in (None, "", {}, ()):
            table.add_row(name, value if isinstance(value, Text) else str(value))
    return table


def clock(at: datetime) -> str:
    """A time as tables show it."""
    return at.strftime("%Y-%m-%d %H:%M:%S")
