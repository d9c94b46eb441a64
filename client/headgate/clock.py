"""The time, checked against DynamoDB's.

Every answer carries the server's `Date`. It bounds how far this host's clock can be off; the
bounds of many answers intersect. A clock that is provably wrong is corrected, one that may be
right is left alone, so hosts with good clocks never disagree more than they do by themselves.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from email.utils import parsedate_to_datetime

from headgate.bucket import Milliseconds

# `Date` is cut to a second, and servers may keep one for up to another second.
_DATE_LAG = 2_000
_FORGET_AFTER = 600_000


def system_time() -> Milliseconds:
    """This host's clock."""
    return Milliseconds(time.time_ns() // 1_000_000)


class Clock:
    """Milliseconds since the epoch, as near to the server's as its answers show."""

    def __init__(self, source: Callable[[], Milliseconds] = system_time) -> None:
        self._source = source
        self._last_date = ""
        self._low = self._high = 0  # this host's clock minus the server's lies between these
        self._since: int | None = None
        self._offset = 0

    @property
    def checked(self) -> bool:
        """Whether any answer has been seen."""
        return self._since is not None

    @property
    def offset(self) -> int:
        """By how many milliseconds this host's clock is known to be ahead; 0 if it may be right."""
        return self._offset

    def raw(self) -> Milliseconds:
        """This host's clock, uncorrected."""
        return self._source()

    def now(self) -> Milliseconds:
        """The time to compute with."""
        return Milliseconds(self._source() - self._offset)

    def observe(self, date: str | None, sent: Milliseconds, received: Milliseconds) -> None:
        """Takes note of an answer's `Date`, with this host's uncorrected times around it."""
        if not date or date == self._last_date:
            return
        try:
            server = int(parsedate_to_datetime(date).timestamp() * 1000)
        except ValueError:
            return
        self._last_date = date
        low, high = sent - server - _DATE_LAG, received - server
        if self._since is not None and received - self._since < _FORGET_AFTER:
            narrowed = max(low, self._low), min(high, self._high)
            # An empty intersection means that a clock was set: only the newest answer counts.
            if narrowed[0] <= narrowed[1]:
                low, high = narrowed
        else:
            self._since = received
        self._low, self._high = low, high
        # The upper bound is the sharp one, since a `Date` is never early: a clock that is a little
        # slow is put right by as little, and one that is corrected is never ahead.
        self._offset = 0 if low <= 0 <= high else high
