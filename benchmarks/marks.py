"""What a worker says to the recorder, if there is one. Standard library only."""

from __future__ import annotations

import os
import urllib.request


def mark(name: str) -> None:
    """Begins a chapter."""
    if not os.environ.get("BENCH_MARKED"):
        return
    request = urllib.request.Request(  # noqa: S310
        os.environ["AWS_ENDPOINT_URL"], b"{}", {"X-Amz-Target": f"Mark.{name}"}
    )
    urllib.request.urlopen(request).close()  # noqa: S310
