"""The client as a Lambda layer, and the code of the limiter's own functions."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from aws_cdk import Stack, Stage
from aws_cdk import aws_lambda as lambda_

from headgate_cdk import staging

if TYPE_CHECKING:
    from collections.abc import Sequence

    from constructs import Construct

ID_IN_STACK = "HeadgateLayer"


def make_layer(scope: Construct, id: str = "Layer") -> lambda_.LayerVersion:  # noqa: A002
    """A layer with the client as it is installed here, for any Python function."""
    return lambda_.LayerVersion(
        scope,
        id,
        code=_asset(scope, staging.client_files()),
        description="The client of Headgate, a rate limiter",
        license="Apache-2.0",
        compatible_architectures=[lambda_.Architecture.ARM_64, lambda_.Architecture.X86_64],
        compatible_runtimes=[
            lambda_.Runtime.PYTHON_3_11,
            lambda_.Runtime.PYTHON_3_12,
            lambda_.Runtime.PYTHON_3_13,
            lambda_.Runtime.PYTHON_3_14,
        ],
    )


def layer_of_stack(stack: Stack) -> lambda_.ILayerVersion:
    """The stack's own layer.

    A layer's ARN changes with every release of the client. An export of it could never be
    updated while another stack imports it, so each stack that attaches functions has its own.
    """
    made = stack.node.try_find_child(ID_IN_STACK)
    if isinstance(made, lambda_.LayerVersion):
        return made
    return make_layer(stack, ID_IN_STACK)


def function_code(scope: Construct, name: str, *, packages: Sequence[str] | None) -> lambda_.Code:
    """The code of one of the limiter's functions."""
    wanted = () if packages is None else (*staging.PACKAGES, *packages)
    return _asset(scope, staging.function_files(name, packages=wanted))


def _asset(scope: Construct, files: staging.Files) -> lambda_.Code:
    stage = Stage.of(scope)
    root = Path(stage.asset_outdir if stage else "cdk.out")
    return lambda_.Code.from_asset(str(staging.stage(files, root)))
