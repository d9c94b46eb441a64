"""Flows as methods: written once, offered by the blocking and by the asyncio classes."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Awaitable, Callable
from typing import (
    TYPE_CHECKING,
    Any,
    Concatenate,
    Generic,
    ParamSpec,
    Protocol,
    TypeVar,
    cast,
    overload,
)

from headgate.effects import Flow

if TYPE_CHECKING:
    from typing import Self

P = ParamSpec("P")
R = TypeVar("R")
S = TypeVar("S")


class _Runs(Protocol):
    """Whatever has a driver and an object that flows belong to."""

    _driver: Any

    def _subject(self) -> Any: ...


def _shown(flow: Callable[..., Any]) -> inspect.Signature:
    """The signature as callers see it: without what the flow belongs to, with what it gives."""
    plain = inspect.signature(flow)
    gives = str(plain.return_annotation).removeprefix("Flow[").removesuffix("]")
    return plain.replace(parameters=[*plain.parameters.values()][1:], return_annotation=gives)


class sync(Generic[S, P, R]):  # noqa: N801 - read as a decorator
    """A flow as a method that blocks."""

    def __init__(self, flow: Callable[Concatenate[S, P], Flow[R]]) -> None:
        self._flow = flow
        self.__doc__ = flow.__doc__
        self._shown = _shown(flow)

    @overload
    def __get__(self, owner: None, kind: type) -> Self: ...
    @overload
    def __get__(self, owner: _Runs, kind: type) -> Callable[P, R]: ...
    def __get__(self, owner: _Runs | None, kind: type) -> Any:
        if owner is None:
            return self
        flow = self._flow

        @functools.wraps(flow)
        def method(*args: P.args, **kwargs: P.kwargs) -> R:
            return cast("R", owner._driver.run(flow(owner._subject(), *args, **kwargs)))

        vars(method)["__signature__"] = self._shown
        return method


class aio(Generic[S, P, R]):  # noqa: N801 - read as a decorator
    """A flow as a coroutine method."""

    def __init__(self, flow: Callable[Concatenate[S, P], Flow[R]]) -> None:
        self._flow = flow
        self.__doc__ = flow.__doc__
        self._shown = _shown(flow)

    @overload
    def __get__(self, owner: None, kind: type) -> Self: ...
    @overload
    def __get__(self, owner: _Runs, kind: type) -> Callable[P, Awaitable[R]]: ...
    def __get__(self, owner: _Runs | None, kind: type) -> Any:
        if owner is None:
            return self
        flow = self._flow

        @functools.wraps(flow)
        async def method(*args: P.args, **kwargs: P.kwargs) -> R:
            return cast("R", await owner._driver.run(flow(owner._subject(), *args, **kwargs)))

        vars(method)["__signature__"] = self._shown
        return method
