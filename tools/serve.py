"""`make api`: deploys the limiter over HTTP into the embedded emulator, to be called with curl.

It runs until it is interrupted.
"""

from __future__ import annotations

import os
import signal
import sys
from contextlib import suppress

import deploy
import engine

STACK = engine.ROOT / "examples/api_stack.py"


def main() -> int:
    """Deploy, say where it is, and wait."""
    with engine.ministack() as running:
        os.environ.update(engine.environment(running.endpoint_url))
        print("deploying into the embedded emulator with the CDK ...", flush=True)
        outputs = deploy.bootstrap_and_deploy(running.endpoint_url, STACK)["Limits"]
        print("It runs until you press Ctrl-C. In another terminal:\n")
        for name, value in settings(address(running.endpoint_url, outputs["ApiId"])).items():
            print(f"export {name}={value}", flush=True)
        with suppress(KeyboardInterrupt):
            signal.pause()
    return 0


def address(endpoint_url: str, api_id: str) -> str:
    """Where the emulator answers for an HTTP API: by path, since a name below localhost is not
    known to every resolver, and would leave `/health` to the emulator itself.
    """
    return f"{endpoint_url}/_aws/execute-api/{api_id}"


def settings(url: str) -> dict[str, str]:
    """What the commands of the documentation are given."""
    aws = engine.environment(url)
    return {
        "API": url,
        **{
            name: aws[name] for name in ("AWS_REGION", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")
        },
    }


def _end(*_: object) -> None:
    raise KeyboardInterrupt


if __name__ == "__main__":
    # The engine is ended with the block that it runs in, however this is told to end.
    signal.signal(signal.SIGTERM, _end)
    sys.exit(main())
