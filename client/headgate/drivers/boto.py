"""Flows over boto3: one thread per flow, a pool for what a flow sends side by side."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Any

from headgate.clock import Clock
from headgate.drivers.outcomes import from_exception
from headgate.effects import Answer, Call, Effect, Flow, Outcome, Pause, T

_WORKERS = 64


@cache
def method_name(operation: str) -> str:
    """UpdateItem as boto3 has it: update_item."""
    return re.sub(r"(?<!^)(?=[A-Z])", "_", operation).lower()


class BotoDriver:
    """Runs flows. Safe to share between threads, as boto3's clients are."""

    def __init__(
        self, connect: Callable[..., Any], table: str, clock: Clock, *, owned: bool = True
    ) -> None:
        self._connect = connect
        self._owned = owned
        self._table = table
        self._clock = clock
        self._lock = threading.Lock()
        self._methods: dict[str, Callable[..., dict[str, Any]]] = {}
        self._client: Any = None
        self._pool: ThreadPoolExecutor | None = None

    def run(self, flow: Flow[T]) -> T:
        """The flow's result, or what it raises."""
        try:
            effect = next(flow)
            while True:
                try:
                    outcomes = self._perform(effect)
                except BaseException as interrupt:  # noqa: BLE001 - passed on to the flow
                    # The flow may hold tokens: it hears of the interrupt and may still send.
                    effect = flow.throw(interrupt)
                else:
                    effect = flow.send(outcomes)
        except StopIteration as stop:
            result: T = stop.value
            return result

    def close(self) -> None:
        """Lets go of threads and connections."""
        with self._lock:
            pool, self._pool = self._pool, None
            client, self._client = self._client, None
            self._methods.clear()
        if pool is not None:
            pool.shutdown()
        if client is not None and self._owned:
            client.close()

    def _perform(self, effect: Effect) -> list[Outcome]:
        if isinstance(effect, Pause):
            time.sleep(effect.seconds)
            return []
        first, *rest = effect
        if first.service != "dynamodb":
            return [self._ask(first)]
        futures = [self._executor().submit(self._send, call) for call in rest] if rest else []
        return [self._send(first), *(future.result() for future in futures)]

    def _send(self, call: Call) -> Outcome:
        sent = self._clock.raw()
        try:
            method = self._methods.get(call.operation) or self._method(call.operation)
            body = method(**call.params)
        except Exception as error:  # noqa: BLE001 - classified, never swallowed
            self._observe(getattr(error, "response", None), sent)
            return from_exception(error, self._table)
        self._observe(body, sent)
        return Answer(body)

    def _ask(self, call: Call) -> Outcome:
        """A call of another service, seldom made: over a client of its own."""
        try:
            client = self._connect(call.service)
            try:
                return Answer(getattr(client, method_name(call.operation))(**call.params))
            finally:
                client.close()
        except Exception as error:  # noqa: BLE001 - classified, never swallowed
            return from_exception(error, self._table)

    def _observe(self, response: Any, sent: Any) -> None:
        headers = (response or {}).get("ResponseMetadata", {}).get("HTTPHeaders", {})
        self._clock.observe(headers.get("date"), sent, self._clock.raw())

    def _method(self, operation: str) -> Callable[..., dict[str, Any]]:
        with self._lock:
            if self._client is None:
                self._client = self._connect()
            method: Callable[..., dict[str, Any]] = getattr(self._client, method_name(operation))
            self._methods[operation] = method
            return method

    def _executor(self) -> ThreadPoolExecutor:
        with self._lock:
            if self._pool is None:
                self._pool = ThreadPoolExecutor(_WORKERS, thread_name_prefix="headgate")
            return self._pool
