"""The pictures in docs/guide/operate.md, from real runs: `python -m tests.cli.screenshots`."""

from __future__ import annotations

import os
import tempfile
import threading
from pathlib import Path

import engine
from headgate import RateLimitExceeded, SyncRateLimiter, local
from tests.cli.shell import ROOT, File, Shell, steps
from tests.cli.test_guide import PAGE, count

IMAGES = ROOT / "docs/guide/img"
CALLERS = {"acme-eu": 0.05, "acme-us": 0.12, "globex": 0.2, "initech": 0.4, "umbrella": 0.9}


def traffic(stop: threading.Event) -> list[threading.Thread]:
    """Callers of different haste, until they are told to stop."""
    limiter = SyncRateLimiter("limits")

    def calls(who: str, pause: float) -> None:
        while not stop.wait(pause):
            try:
                with limiter.acquire(who, "reports", "export"):
                    pass
            except RateLimitExceeded:
                continue

    threads = [threading.Thread(target=calls, args=caller) for caller in CALLERS.items()]
    for thread in threads:
        thread.start()
    return threads


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        where = {
            "HEADGATE_LOCAL": str(place / "engine"),
            "HEADGATE_ENGINE": str(ROOT / ".engine/bin/ministack"),
        }
        shell = Shell(place, **where, COLUMNS="92")
        try:
            shell.run('eval "$(headgate local up)"')
            url = shell.run("echo $AWS_ENDPOINT_URL").strip()
            os.environ.update(engine.environment(url))
            for step in steps(PAGE):
                if isinstance(step, File):
                    (place / step.name).write_text(step.content)
            shell.run("headgate limits apply limits.yaml --yes")
            shell.run("headgate acquire acme-eu search rpm=23")
            count(url)
            stop = threading.Event()
            threads = traffic(stop)
            shell.run("headgate top reports --once --interval 3 > /dev/null")
            shell.run("headgate entity bypass umbrella --resource reports")
            for command, name in (
                ("top reports --once --interval 4", "top"),
                ("status acme-eu", "status"),
            ):
                shell.run(f"FORCE_COLOR=1 NO_COLOR= headgate {command} --save {IMAGES / name}.svg")
            stop.set()
            for thread in threads:
                thread.join()
            chart = f"--limit units --output {IMAGES / 'usage.svg'}"
            shell.run(f"headgate usage plot --entity acme --resource reports {chart}")
        finally:
            shell.close()
            local.down(place / "engine")


if __name__ == "__main__":
    main()
