"""What a limit promises, held against what was admitted and when.

In any interval of length T, at most `capacity + rate * (T + e)`. Nobody outside the engine sees
the moment at which a draw took effect, only that it lies between request and answer: `e` is
100 ms, which the limiter takes for itself, and the longest request.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

SLACK = 0.1  # seconds
Draw = tuple[float, float]  # when, in seconds, and how much


@dataclass(frozen=True, slots=True)
class Verdict:
    """Of one limit."""

    admitted: float
    bound: float  # from the first draw to the last, with nothing allowed for errors
    excess: float  # beyond the bound, in the worst of all intervals; negative: never reached
    allowance: float  # what `e` is worth

    @property
    def held(self) -> bool:
        """Whether the promise was kept."""
        return self.excess <= self.allowance


def verdict(
    draws: Iterable[Draw], capacity: float, rate: float, longest: float = 0.0
) -> Verdict | None:
    """None if nothing was admitted. `rate` is in tokens a second, `longest` in seconds."""
    ordered = sorted(draws)
    if not ordered:
        return None
    began, ended = ordered[0][0], ordered[-1][0]
    excess = float("-inf")
    spare = 0.0  # what the interval that ends here had drawn beyond its refill
    last = began
    for when, amount in ordered:
        spare = max(0.0, spare - rate * (when - last)) + amount
        excess = max(excess, spare - capacity)
        last = when
    return Verdict(
        admitted=sum(amount for _, amount in ordered),
        bound=capacity + rate * (ended - began),
        excess=excess,
        allowance=rate * (SLACK + longest),
    )
