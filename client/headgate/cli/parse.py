"""What people type: amounts, limits, times."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from headgate.errors import ValidationError
from headgate.limit import Limit

PERIODS = {"second": 1, "minute": 60, "hour": 3_600, "day": 86_400}
_LIMIT = re.compile(r"(\w+)=(\d+)/(\w+?)(?:,burst=(\d+))?")
_AMOUNT = re.compile(r"(\w+)=(\d+)")
_AGO = re.compile(r"(\d+)([smhd])")
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}
_NEVER = "never"


def consume(words: Sequence[str]) -> dict[str, int] | str:
    """`rpm=1 tpm=100`, or the name of an operation."""
    if len(words) == 1 and "=" not in words[0]:
        return words[0]
    return amounts(words)


def amounts(words: Sequence[str]) -> dict[str, int]:
    """`rpm=1 tpm=100` by name."""
    found: dict[str, int] = {}
    for word in words:
        match = _AMOUNT.fullmatch(word)
        if match is None:
            raise ValidationError(f"an amount is NAME=NUMBER, like rpm=1: {word!r}")
        found[match[1]] = int(match[2])
    return found


def limit(word: str) -> Limit:
    """`rpm=600/minute`, `tpm=1000/hour,burst=5000`, `seats=10/never`."""
    match = _LIMIT.fullmatch(word)
    if match is None or match[3] not in {*PERIODS, _NEVER}:
        raise ValidationError(
            "a limit is NAME=AMOUNT/PERIOD[,burst=AMOUNT] with a period of "
            f"{', '.join(PERIODS)} or {_NEVER}, like rpm=600/minute: {word!r}"
        )
    name, amount, period = match[1], int(match[2]), match[3]
    burst = int(match[4]) if match[4] else amount
    if period == _NEVER:
        return Limit.custom(name, capacity=burst, refill_amount=0, refill_period=1)
    return Limit.custom(name, capacity=burst, refill_amount=amount, refill_period=PERIODS[period])


def moment(word: str | None) -> datetime | None:
    """`2h` ago, or a date, or a time as ISO 8601 has it, in UTC if it does not say."""
    if word is None:
        return None
    ago = _AGO.fullmatch(word)
    if ago:
        return datetime.now(UTC) - timedelta(**{_UNITS[ago[2]]: int(ago[1])})
    try:
        found = datetime.fromisoformat(word)
    except ValueError:
        raise ValidationError(
            f"a time is a while ago like 2h or 7d, or ISO 8601 like 2026-01-31T12:00: {word!r}"
        ) from None
    return found if found.tzinfo else found.replace(tzinfo=UTC)
