"""The circuit breaker: after an outage is certain, answer at once instead of after a timeout.

closed --5 failures in a row--> open --10 s, doubling to 60 s--> half-open
half-open --2 successes--> closed          half-open --a failure--> open
"""

from __future__ import annotations

import threading
from enum import StrEnum

from headgate.bucket import Milliseconds


class BreakerState(StrEnum):
    """What the breaker lets through: all, one trial at a time, or nothing."""

    CLOSED = "closed"
    HALF_OPEN = "half_open"
    OPEN = "open"


class Breaker:
    """Only unreachability counts as failure: a rejection, a throttle or a clock error does not."""

    def __init__(
        self,
        *,
        failures: int = 5,
        successes: int = 2,
        first_wait: int = 10_000,
        longest_wait: int = 60_000,
    ) -> None:
        self._to_open = failures
        self._to_close = successes
        self._first_wait = first_wait
        self._longest_wait = longest_wait
        self._lock = threading.Lock()
        self._count = 0
        self._wait = first_wait
        self._opened_at = 0
        self._trial_at: int | None = None
        self.state = BreakerState.CLOSED

    def allows(self, now: Milliseconds) -> bool:
        """Whether a request may be sent. In half-open state this hands out the one trial."""
        if self.state is BreakerState.CLOSED:
            return True
        with self._lock:
            if self.state is BreakerState.OPEN and now - self._opened_at >= self._wait:
                self.state = BreakerState.HALF_OPEN
                self._count = 0
                self._trial_at = None
            if self.state is not BreakerState.HALF_OPEN:
                return self.state is BreakerState.CLOSED
            # A trial whose caller died gives its place up after the first wait.
            if self._trial_at is not None and now - self._trial_at < self._first_wait:
                return False
            self._trial_at = now
            return True

    def succeeded(self) -> None:
        """The table answered."""
        if self.state is BreakerState.CLOSED and not self._count:
            return
        with self._lock:
            self._trial_at = None
            if self.state is BreakerState.CLOSED:
                self._count = 0
            elif self.state is BreakerState.HALF_OPEN:
                self._count += 1
                if self._count >= self._to_close:
                    self.state = BreakerState.CLOSED
                    self._count = 0
                    self._wait = self._first_wait

    def failed(self, now: Milliseconds) -> None:
        """The table did not answer."""
        with self._lock:
            self._trial_at = None
            if self.state is BreakerState.HALF_OPEN:
                self._wait = min(self._wait * 2, self._longest_wait)
                self.state = BreakerState.OPEN
                self._opened_at = now
            elif self.state is BreakerState.CLOSED:
                self._count += 1
                if self._count >= self._to_open:
                    self.state = BreakerState.OPEN
                    self._opened_at = now
