"""Lambda's event filtering, as far as our patterns use it: exact values and prefixes.

A pattern holds if each of its leaves, a list of alternatives, matches the value at its place.
"""

from __future__ import annotations

from typing import Any


def fires(pattern: Any, event: Any) -> bool:
    if isinstance(pattern, dict):
        return isinstance(event, dict) and all(
            name in event and fires(inner, event[name]) for name, inner in pattern.items()
        )
    return any(_matches(alternative, event) for alternative in pattern)


def _matches(alternative: Any, value: Any) -> bool:
    if isinstance(alternative, dict):
        ((rule, operand),) = alternative.items()
        assert rule == "prefix", f"the model does not know the rule {rule!r}"
        return isinstance(value, str) and value.startswith(operand)
    return alternative == value
