"""The language between the core and its drivers.

The core is written as flows: generators that yield a batch of requests (to be sent
concurrently) or a pause, and are sent the batch's outcomes. A driver runs a flow over boto3,
aiobotocore or the simulator; it does I/O and decides nothing.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar

Item: TypeAlias = dict[str, dict[str, Any]]
"""An item as DynamoDB's JSON has it. Decoded at once by schema.py; never travels further."""


@dataclass(frozen=True, slots=True)
class Call:
    """One DynamoDB call. A credit is not `repeatable`: its outcome may be unknown only once.

    A call of another `service` is sent alone.
    """

    operation: str
    params: Mapping[str, Any]
    repeatable: bool = True
    service: str = "dynamodb"


@dataclass(frozen=True, slots=True)
class Pause:
    """Nothing to send for so many seconds."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Answer:
    """Done; the response's body."""

    body: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ConditionFailed:
    """Not done: the condition did not hold for this item (None: there is no item)."""

    item: Item | None


@dataclass(frozen=True, slots=True)
class TransactionFailed:
    """Not done: for each action its code ("None" if it was not at fault) and the item seen."""

    reasons: tuple[tuple[str, Item | None], ...]


@dataclass(frozen=True, slots=True)
class Conflicted:
    """Not done: a transaction held the item."""


@dataclass(frozen=True, slots=True)
class Throttled:
    """Not done: too many requests. `of_key` tells a hot key from a table or account at its cap."""

    reason: str
    of_key: bool


@dataclass(frozen=True, slots=True)
class Unreachable:
    """Perhaps done, perhaps not: no answer came, or one that does not tell."""

    reason: str


@dataclass(frozen=True, slots=True)
class Refused:
    """Not done, and it never will be: permissions, a missing table, a malformed request."""

    error: Exception


Outcome: TypeAlias = (
    Answer | ConditionFailed | TransactionFailed | Conflicted | Throttled | Unreachable | Refused
)
Effect: TypeAlias = tuple[Call, ...] | Pause
T = TypeVar("T")
Flow: TypeAlias = Generator[Effect, Sequence[Outcome], T]


def _joined(effects: Sequence[Effect]) -> Effect:
    """All that is to be sent; if nothing is, the longest pause."""
    calls = tuple(call for e in effects if not isinstance(e, Pause) for call in e)
    return calls or Pause(max(e.seconds for e in effects if isinstance(e, Pause)))


def together(flows: Sequence[Flow[T]]) -> Flow[list[T | Exception]]:
    """Runs flows side by side, their requests joined into one batch per step.

    An exception ends its own flow and takes its result's place, so that the caller sees what
    the others did and can undo it. A flow that pauses sits out the others' next batch. An
    interrupt is heard by every flow that is not at its end, and each may still send what it takes
    to give back what it has; then it goes on to the caller.
    """
    results: list[T | Exception] = [RuntimeError("not run")] * len(flows)
    waiting: dict[int, Effect] = {}
    interrupt: BaseException | None = None

    def step(position: int, outcomes: Sequence[Outcome] | None) -> None:
        flow = flows[position]
        try:
            if outcomes is not None:
                waiting[position] = flow.send(outcomes)
            else:
                waiting[position] = next(flow) if interrupt is None else flow.throw(interrupt)
        except StopIteration as stop:
            results[position] = stop.value
        except Exception as error:  # noqa: BLE001 - handed to the caller as a result
            results[position] = error
        except BaseException as error:
            if error is not interrupt:
                raise

    for position in range(len(flows)):
        step(position, None)
    while waiting:
        effects, start = list(waiting.items()), 0
        waiting.clear()
        try:
            outcomes = yield _joined([effect for _, effect in effects])
        except GeneratorExit:
            raise  # nobody is left to send anything
        except BaseException as error:  # noqa: BLE001 - raised below, when all have heard of it
            interrupt = error
            for position, _ in effects:
                step(position, None)
            continue
        for position, effect in effects:
            count = 0 if isinstance(effect, Pause) else len(effect)
            step(position, outcomes[start : start + count])
            start += count
    if interrupt is not None:
        raise interrupt
    return results
