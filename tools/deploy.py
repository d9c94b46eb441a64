"""Run the real CDK command line against an engine, as a user runs it against AWS.

with ministack() as engine:
    outputs = bootstrap_and_deploy(engine.endpoint_url, ROOT / "app.py", {"name": "demo"})
    outputs["demo"]["TableName"]
"""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from engine import REGION, ROOT, environment

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

ACCOUNT = "000000000000"
# A custom resource that never answers would hold a deployment for an hour.
PATIENCE = 240.0
CLI = ROOT / "node_modules/.bin/cdk"

Outputs = dict[str, dict[str, str]]
"""Stack -> output -> value."""


class DeployError(RuntimeError):
    """The command failed; carries what it printed."""


def bootstrap_and_deploy(
    endpoint_url: str, app: Path, context: Mapping[str, str] | None = None
) -> Outputs:
    """Prepare the account if need be, deploy all stacks of the app, and return their outputs."""
    bootstrap(endpoint_url)
    return deploy(endpoint_url, app, context)


def bootstrap(endpoint_url: str) -> None:
    """Make the bucket and roles that the CDK deploys with. Again is harmless."""
    cdk(endpoint_url, ["bootstrap", f"aws://{ACCOUNT}/{REGION}"])


def deploy(endpoint_url: str, app: Path, context: Mapping[str, str] | None = None) -> Outputs:
    """Deploy all stacks of the app."""
    with tempfile.TemporaryDirectory(prefix="headgate-deploy-") as folder:
        outputs = Path(folder) / "outputs.json"
        command = ["deploy", "--all", "--require-approval", "never"]
        command += ["--outputs-file", str(outputs)]
        cdk(endpoint_url, command, app=app, context=context)
        return json.loads(outputs.read_text()) if outputs.exists() else {}


def destroy(endpoint_url: str, app: Path, context: Mapping[str, str] | None = None) -> None:
    """Destroy all stacks of the app."""
    cdk(endpoint_url, ["destroy", "--all", "--force"], app=app, context=context)


def cdk(
    endpoint_url: str,
    command: Sequence[str],
    *,
    app: Path | None = None,
    context: Mapping[str, str] | None = None,
) -> str:
    """Run one command with files of its own, and return what it printed."""
    if not CLI.exists():
        raise DeployError(f"{CLI} is not installed: run `make setup`")
    with tempfile.TemporaryDirectory(prefix="headgate-cdk-") as folder:
        arguments = [str(CLI), *command, "--no-color", "--no-notices", "--ci"]
        if app is not None:
            # `exec`, because the command line strips quotes that enclose the whole value.
            program = f"exec {shlex.join([sys.executable, str(app)])}"
            arguments += ["--app", program, "--output", f"{folder}/cdk.out"]
        for name, value in (context or {}).items():
            arguments += ["--context", f"{name}={value}"]
        try:
            ran = subprocess.run(
                arguments,
                cwd=folder if app is None else app.parent,
                env={**os.environ, **environment(endpoint_url), **_settings(folder)},
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                check=False,
                timeout=PATIENCE,
            )
        except subprocess.TimeoutExpired as late:
            said = (late.stdout or b"").decode(errors="replace")[-6000:]
            raise DeployError(f"cdk {command[0]} did not end in {PATIENCE} s:\n{said}") from late
    if ran.returncode:
        raise DeployError(f"cdk {command[0]} exited with {ran.returncode}:\n{ran.stdout[-6000:]}")
    return ran.stdout


def _settings(folder: str) -> dict[str, str]:
    return {
        "CDK_HOME": folder,
        "NODE_NO_WARNINGS": "1",
        "CDK_DISABLE_CLI_TELEMETRY": "true",
        "CDK_DISABLE_VERSION_CHECK": "1",
        "JSII_SILENCE_WARNING_END_OF_LIFE_NODE_VERSION": "1",
        "JSII_SILENCE_WARNING_DEPRECATED_NODE_VERSION": "1",
        "JSII_SILENCE_WARNING_UNTESTED_NODE_VERSION": "1",
    }
