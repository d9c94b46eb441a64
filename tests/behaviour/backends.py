"""The backends that the behaviours are tested over: a name, and how to open one.

A backend is one table, one time, and clients made by `limiter(**options)`: an adapter as
tests/limiters.py describes it. Clients of a backend share its table, its time and, unless
they say otherwise, a namespace.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

from moto import mock_aws

from headgate import SyncRateLimiter, shards
from headgate.drivers.boto import BotoDriver
from headgate.effects import Call, Effect, Outcome, Pause
from headgate.schema import BucketRef
from tests.limiters import AgreedClock, Async, Sync, Time, boto_session, create_table
from tests.simulation.engine import Engine

if TYPE_CHECKING:
    import pytest

NAMESPACE_ID = "behaviours_"


class Backend:
    """One table, its time, and as many clients as a test wants."""

    def __init__(
        self,
        make: Callable[..., Any],
        time: Time,
        delete: Callable[[dict[str, Any]], None],
        **options: Any,
    ) -> None:
        self.time = time
        self._make = make
        self._delete = delete
        self._options = options
        self._stack = ExitStack()

    def limiter(self, **options: Any) -> Any:
        """A client that has seen nothing yet."""
        given: dict[str, Any] = {"namespace_id": NAMESPACE_ID, "clock": AgreedClock(self.time)}
        made = self._make(**(given | self._options | options))
        self._stack.callback(made.close)
        return made

    def expire(self, entity_id: str, resource: str) -> None:
        """The bucket goes as DynamoDB's expiry takes it."""
        ref = BucketRef(NAMESPACE_ID, entity_id, resource)
        self._delete(ref.key(0))

    def close(self) -> None:
        self._stack.close()


def run_flow(limiter: Any, flow: Any) -> Any:
    """What a flow gives, on any adapter's driver."""
    result = limiter.limiter._driver.run(flow)
    return limiter.run(result) if hasattr(limiter, "run") else result


def split(limiter: Any, times: int, entity_id: str = "alice", resource: str = "gpt-4") -> None:
    """Splits every shard of a bucket so many times."""
    core = limiter.limiter._core
    ref = BucketRef(core.ns, entity_id, resource)

    def flow() -> Any:
        for _ in range(times):
            for bucket in (yield from shards.read_all(core, ref)):
                yield from shards.split(core, ref, bucket)

    run_flow(limiter, flow())


@contextmanager
def _deleting(table: str, url: str | None) -> Iterator[Callable[[dict[str, Any]], None]]:
    client = boto_session().client("dynamodb", endpoint_url=url)
    yield lambda key: client.delete_item(TableName=table, Key=key)
    client.close()


@contextmanager
def _on_ministack(request: pytest.FixtureRequest, make: Callable[..., Any]) -> Iterator[Backend]:
    url = request.getfixturevalue("ministack").endpoint_url
    table = f"table-{uuid.uuid4().hex}"
    create_table(table, url)
    with _deleting(table, url) as delete:
        yield Backend(make, Time(), delete, table=table, endpoint_url=url)


def ministack_sync(request: pytest.FixtureRequest) -> AbstractContextManager[Backend]:
    return _on_ministack(request, Sync.made)


def ministack_async(request: pytest.FixtureRequest) -> AbstractContextManager[Backend]:
    return _on_ministack(request, Async.made)


@contextmanager
def moto_sync(_: pytest.FixtureRequest) -> Iterator[Backend]:
    with mock_aws():
        create_table("behaviours")
        with _deleting("behaviours", None) as delete:
            yield Backend(Sync.made, Time(), delete, table="behaviours")


class SimulatedDriver(BotoDriver):
    """Runs flows over the simulator's engine, in the test's time: a pause passes at once."""

    def __init__(self, engine: Engine, time: Time, clock: Any) -> None:
        super().__init__(lambda: None, engine.table, clock)
        self._engine = engine
        self._time = time

    def _perform(self, effect: Effect) -> list[Outcome]:
        if isinstance(effect, Pause):
            self._time.advance(effect.seconds)
            return []
        return [self._send(call) for call in effect]

    def _send(self, call: Call) -> Outcome:
        outcome = self._engine.send(call)
        self._observe(None, self._clock.raw())
        return outcome


@contextmanager
def simulator(_: pytest.FixtureRequest) -> Iterator[Backend]:
    engine, time = Engine(), Time()

    def make(**options: Any) -> Sync:
        limiter = SyncRateLimiter(engine.table, **options)
        limiter._driver = SimulatedDriver(engine, time, limiter._core.clock)
        return Sync(limiter)

    def delete(key: dict[str, Any]) -> None:
        engine.send(Call("DeleteItem", {"TableName": engine.table, "Key": key}))

    yield Backend(make, time, delete)


BACKENDS: dict[str, Callable[[pytest.FixtureRequest], AbstractContextManager[Backend]]] = {
    "ministack-sync": ministack_sync,
    "ministack-async": ministack_async,
    "moto-sync": moto_sync,
    "simulator": simulator,
}
