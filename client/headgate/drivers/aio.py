"""Flows over aiobotocore: one task per flow, cancellation that loses no tokens."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack
from typing import Any

from headgate.clock import Clock
from headgate.drivers.boto import method_name
from headgate.drivers.outcomes import from_exception
from headgate.effects import Answer, Call, Flow, Outcome, Pause, T


class AioDriver:
    """Runs flows on one event loop at a time."""

    def __init__(self, connect: Callable[..., Any], table: str, clock: Clock) -> None:
        self._connect = connect
        self._table = table
        self._clock = clock
        self._stack: AsyncExitStack | None = None
        self._client: Any = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._opening: asyncio.Lock | None = None

    async def run(self, flow: Flow[T], undo: Callable[[T], Flow[Any]] | None = None) -> T:
        """The flow's result, or what it raises.

        A cancellation waits for what is under way, so that its fate is known. A pause is given
        up at once. If the flow ends with a result all the same, `undo` gives it back.
        """
        cancelled: asyncio.CancelledError | None = None
        try:
            effect = next(flow)
            while True:
                try:
                    if not isinstance(effect, Pause):
                        outcomes, cancel = await _certain(self._send_all(effect))
                        cancelled = cancelled or cancel
                    elif cancelled is None:
                        outcomes = await asyncio.sleep(effect.seconds, [])
                    else:
                        raise cancelled  # noqa: TRY301 - the flow hears of it below
                except BaseException as interrupt:  # noqa: BLE001 - passed on to the flow
                    effect = flow.throw(interrupt)
                else:
                    effect = flow.send(outcomes)
        except StopIteration as stop:
            if cancelled is None:
                result: T = stop.value
                return result
            if undo is not None:
                await self.run(undo(stop.value))
            raise cancelled from None
        except Exception:
            if cancelled is not None:
                raise cancelled from None
            raise

    async def close(self) -> None:
        """Lets go of the connections."""
        stack, self._stack, self._client = self._stack, None, None
        if stack is not None and self._loop is asyncio.get_running_loop():
            await stack.aclose()

    async def _send_all(self, calls: tuple[Call, ...]) -> list[Outcome]:
        if calls[0].service != "dynamodb":
            return [await self._ask(calls[0])]
        try:
            client = await self._connected()
        except ImportError:
            raise  # the extra that this needs is not installed
        except Exception as error:  # noqa: BLE001 - classified, never swallowed
            return [from_exception(error, self._table)] * len(calls)
        if len(calls) == 1:
            return [await self._send(client, calls[0])]
        return await asyncio.gather(*(self._send(client, call) for call in calls))

    async def _send(self, client: Any, call: Call) -> Outcome:
        sent = self._clock.raw()
        try:
            body = await getattr(client, method_name(call.operation))(**call.params)
        except Exception as error:  # noqa: BLE001 - classified, never swallowed
            self._observe(getattr(error, "response", None), sent)
            return from_exception(error, self._table)
        self._observe(body, sent)
        return Answer(body)

    async def _ask(self, call: Call) -> Outcome:
        """A call of another service, seldom made: over a client of its own."""
        try:
            async with self._connect(call.service) as client:
                return Answer(await getattr(client, method_name(call.operation))(**call.params))
        except Exception as error:  # noqa: BLE001 - classified, never swallowed
            return from_exception(error, self._table)

    def _observe(self, response: Any, sent: Any) -> None:
        headers = (response or {}).get("ResponseMetadata", {}).get("HTTPHeaders", {})
        self._clock.observe(headers.get("date"), sent, self._clock.raw())

    async def _connected(self) -> Any:
        loop = asyncio.get_running_loop()
        if self._loop is not loop:
            # A function that calls asyncio.run() for each event has a new loop each time; the
            # connections of the old one went with it.
            self._loop, self._opening = loop, asyncio.Lock()
            self._client = self._stack = None
        if self._client is None:
            assert self._opening is not None
            async with self._opening:
                if self._client is None:
                    self._stack = AsyncExitStack()
                    made = self._connect()
                    if hasattr(made, "__aenter__") and not hasattr(made, "update_item"):
                        made = await self._stack.enter_async_context(made)
                    self._client = made
        return self._client


async def _certain(work: Any) -> tuple[list[Outcome], asyncio.CancelledError | None]:
    """Awaits work to its end whatever happens, and says whether a cancellation came meanwhile."""
    task = asyncio.ensure_future(work)
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError as error:
            if task.cancelled():
                raise
            cancelled = error
        except Exception:  # noqa: BLE001, S110 - raised below, by result()
            pass
    return task.result(), cancelled
