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
        print(f"export API={address(running.endpoint_url, outputs['ApiId'])}", flush=True)
        print("It runs until you press Ctrl-C.", flush=True)
        with suppress(KeyboardInterrupt):
            signal.pause()
    return 0


def address(endpoint_url: str, api_id: str) -> str:
    """Where the emulator answers for an HTTP API."""
    port = endpoint_url.rpartition(":")[2]
    # Names below localhost are this machine's, to curl and to most clients.
    return f"http://{api_id}.execute-api.localhost:{port}"


def _end(*_: object) -> None:
    raise KeyboardInterrupt


if __name__ == "__main__":
    # The engine is ended with the block that it runs in, however this is told to end.
    signal.signal(signal.SIGTERM, _end)
    sys.exit(main())
