"""Findings of cdk-nag that are meant: each is acknowledged where it is made, with its reason."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aws_cdk import Acknowledgment, Validations

if TYPE_CHECKING:
    from constructs import IConstruct


def acknowledge(construct: IConstruct, finding: str, reason: str) -> None:
    """Tell validation plugins that this finding is known, and why it stays."""
    Validations.of(construct).acknowledge(Acknowledgment(id=finding, reason=reason))
