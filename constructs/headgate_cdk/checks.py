"""Checks of options at synth: an error names the property, the value and what is allowed.

A token is a value that CloudFormation fills in later. It cannot be checked here, so it passes.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from aws_cdk import Duration, Token

from headgate.errors import ValidationError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection


class InvalidOption(ValueError):
    """A property has a value that can never be right."""

    def __init__(self, name: str, value: object, allowed: str) -> None:
        self.property = name
        self.value = value
        self.allowed = allowed
        super().__init__(f"{name} is {shown(value)}: {allowed}")


def shown(value: object) -> str:
    """The value as its author wrote it, as far as can be told."""
    return f"Duration({value})" if isinstance(value, Duration) else repr(value)


def known(value: object) -> bool:
    """Whether the value is there to be checked: given, and not a token."""
    return value is not None and not Token.is_unresolved(value)


def whole(name: str, value: object, *, least: int, most: int) -> None:
    """A whole number in a range."""
    if not known(value):
        return
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise InvalidOption(name, value, f"must be a whole number from {least} to {most}")


def span(name: str, value: Duration | None, *, least: Duration, most: Duration) -> None:
    """A duration in a range, in whole seconds."""
    if value is None or value.is_unresolved():
        return
    if not least.to_milliseconds() <= value.to_milliseconds() <= most.to_milliseconds():
        raise InvalidOption(name, value, f"must be from {least} to {most}")


def one_of(name: str, value: object, allowed: Collection[str]) -> None:
    """One of a few words."""
    if known(value) and value not in allowed:
        raise InvalidOption(name, value, f"must be one of {', '.join(sorted(allowed))}")


def matches(name: str, value: object, pattern: str, allowed: str) -> None:
    """Text of a given form."""
    if known(value) and not (isinstance(value, str) and re.fullmatch(pattern, value)):
        raise InvalidOption(name, value, allowed)


def by_client(name: str, value: str, rule: Callable[[object], object]) -> None:
    """Text that the client will check again at run time: the same rule, earlier."""
    if not known(value):
        return
    try:
        rule(value)
    except ValidationError as error:
        raise InvalidOption(name, value, str(error)) from error
