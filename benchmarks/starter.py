"""How long a new process takes: to import, to a client with its SDK's, to a first acquire.

Imports nothing before it looks at the clock that the contender would not have to import itself.
"""

import os
import sys
import time

STARTED = time.perf_counter()


def headgate(table: str) -> list[float]:
    """Milliseconds since the beginning, at each of the three."""
    import headgate as library  # noqa: PLC0415

    imported = time.perf_counter()
    limiter = library.SyncRateLimiter(table, namespace_id="benchmarks1", read_timeout=30)
    limiter._driver._resolve()  # noqa: SLF001 - what its first request would do
    connected = time.perf_counter()
    with limiter.acquire("alice", "gpt-4", {"limit0": 1, "limit1": 1}):
        pass
    return [imported, connected, time.perf_counter()]


def peer(table: str) -> list[float]:
    """The same of the peer."""
    import warnings  # noqa: PLC0415

    warnings.simplefilter("ignore")
    import zae_limiter as library  # noqa: PLC0415

    imported = time.perf_counter()
    repository = library.SyncRepository(
        table,
        region="us-east-1",
        endpoint_url=os.environ["AWS_ENDPOINT_URL"],
        _skip_deprecation_warning=True,
    )
    limiter = library.SyncRateLimiter(repository=repository)
    repository._get_client()  # noqa: SLF001 - what its first request would do
    connected = time.perf_counter()
    with limiter.acquire("alice", "gpt-4", {"limit0": 1, "limit1": 1}):
        pass
    return [imported, connected, time.perf_counter()]


marks = {"headgate": headgate, "peer": peer}[sys.argv[1]](os.environ["BENCH_TABLE"])
spent = [(mark - STARTED) * 1e3 for mark in marks]
print('{"import": %f, "client": %f, "acquire": %f}' % tuple(spent), flush=True)  # noqa: UP031
os._exit(0)
