"""The limiter as users hold it, sync and async.

Every operation is a flow written once; the two classes differ in what runs it. `sync` and
`aio` turn a flow into a method of the one or the other, signature and documentation included.
"""

from __future__ import annotations

import copy
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

from headgate import (
    admin,
    audit,
    capacity,
    checks,
    config,
    entities,
    migrations,
    namespaces,
    operate,
    settle,
    usage,
)
from headgate.acquisition import Acquisition, Lease, SyncAcquisition, SyncLease, What, Who
from headgate.breaker import BreakerState
from headgate.clock import Clock
from headgate.core import CacheStats, Core, Event, OnUnavailable, Settings, seconds
from headgate.costs import Consume
from headgate.errors import HeadgateError, ValidationError
from headgate.lease import Hold, Request, Wanted, admit_each, forgo
from headgate.limit import Limit
from headgate.methods import aio, sync

if TYPE_CHECKING:
    from typing import Self

    from headgate.drivers.aio import AioDriver
    from headgate.drivers.boto import BotoDriver


class _Limiter(ABC):
    """What both limiters are made of."""

    def __init__(
        self,
        table: str,
        *,
        namespace: str = "default",
        namespace_id: str | None = None,
        region: str | None = None,
        endpoint_url: str | None = None,
        session: Any = None,
        client: Any = None,
        limits: Sequence[Limit] = (),
        on_unavailable: OnUnavailable = "block",
        connect_timeout: float = 0.4,
        read_timeout: float = 0.6,
        attempts: int = 2,
        config_ttl: float = 60.0,
        rejection_memory: float = 1.0,
        max_cached: int = 50_000,
        on_event: Callable[[Event], None] | None = None,
        clock: Clock | None = None,
        principal: str | Callable[[], str] | None = None,
        audit_days: int = 90,
    ) -> None:
        if client is not None and (session, region, endpoint_url) != (None, None, None):
            raise ValidationError("give either client or session, region and endpoint_url")
        seconds("connect_timeout", connect_timeout)
        seconds("read_timeout", read_timeout)
        settings = Settings(
            table=table,
            namespace=namespace,
            namespace_id=namespace_id,
            limits=limits,
            on_unavailable=on_unavailable,
            attempts=attempts,
            config_ttl=config_ttl,
            rejection_memory=rejection_memory,
            max_cached=max_cached,
            on_event=on_event,
            principal=principal,
            audit_days=audit_days,
        )
        if client is not None:
            _refuse_retries(client)
        self._core = Core(settings, clock=clock)
        self._options: dict[str, Any] = {"region_name": region, "endpoint_url": endpoint_url}
        self._timeouts: dict[str, Any] = {
            "connect_timeout": connect_timeout,
            "read_timeout": read_timeout,
        }
        self._session = session
        self._injected = client
        self._driver = self._drive()

    @abstractmethod
    def _drive(self) -> Any:
        """What runs flows: made without connecting."""

    @classmethod
    def from_env(cls, **overrides: Any) -> Self:
        """A limiter from the environment that the construct sets: HEADGATE_TABLE, and
        optionally HEADGATE_NAMESPACE, HEADGATE_NAMESPACE_ID, HEADGATE_ON_UNAVAILABLE. Region
        and endpoint come from AWS's own variables. Keyword arguments win.
        """
        given = {
            "table": os.environ.get("HEADGATE_TABLE"),
            "namespace": os.environ.get("HEADGATE_NAMESPACE"),
            "namespace_id": os.environ.get("HEADGATE_NAMESPACE_ID"),
            "on_unavailable": os.environ.get("HEADGATE_ON_UNAVAILABLE"),
        }
        options = {name: value for name, value in given.items() if value} | overrides
        if "table" not in options:
            raise ValidationError(
                "HEADGATE_TABLE is not set: attach the function to the construct, or set it to "
                "the table's name"
            )
        return cls(**options)

    @property
    def on_unavailable(self) -> OnUnavailable:
        """What an outage means, unless a call says otherwise: the stored policy as it was last
        read, or else the constructor's.
        """
        return self._core.stored_policy or self._core.settings.on_unavailable

    @property
    def breaker(self) -> BreakerState:
        """Whether requests are sent at all."""
        return self._core.breaker.state

    @property
    def clock_offset(self) -> float:
        """By how many seconds this host's clock is known to be ahead, and is corrected."""
        return self._core.clock.offset / 1000

    def namespace(self, name: str) -> Self:
        """A limiter for another namespace of the table, over the same connections."""
        other = copy.copy(self)
        settings = replace(self._core.settings, namespace=name, namespace_id=None)
        other._core = Core(
            settings,
            clock=self._core.clock,
            breaker=self._core.breaker,
            identity=self._core.identity,
        )
        return other

    def cache_stats(self) -> CacheStats:
        """Hits, misses and size of the configuration cache."""
        return config.cache_stats(self._core)

    def invalidate_cache(self) -> None:
        """Forgets cached configuration: the next acquire of each bucket reads it anew."""
        config.invalidate(self._core)

    def _subject(self) -> Core:
        return self._core

    def _wanted(
        self,
        entity_id: Who,
        resource: str,
        consume: What,
        limits: Sequence[Limit] | None,
        max_wait: float | None,
        on_unavailable: OnUnavailable | None,
        also: Sequence[Request],
    ) -> Wanted:
        first = Request(cast("str", entity_id), resource, cast("Consume", consume), limits)
        return Wanted((first, *also), max_wait, on_unavailable)


class SyncRateLimiter(_Limiter):
    """A limiter for code that blocks. Safe to share between threads; make one per process.

    `table` is the table's name. `namespace` separates tenants of one table. Where nothing is
    stored for an entity, `limits` apply. `on_unavailable` says what an outage means ("block"
    raises RateLimiterUnavailable, "allow" gives a degraded lease); it is decided in at most
    `attempts * (connect_timeout + read_timeout)` seconds, and by the breaker at once. Changes are
    filed under `principal` (a name, or a function that gives one; by default whose credentials
    these are, asked of STS) and kept for `audit_days`.
    """

    def _drive(self) -> BotoDriver:
        # Drivers load the SDK, which takes longer than all else: not before there is a limiter.
        from headgate.drivers.boto import BotoDriver  # noqa: PLC0415
        from headgate.drivers.fast import FastDriver  # noqa: PLC0415

        core = self._core
        if self._injected is not None:
            return BotoDriver(self._connect, core.table, core.clock, owned=False)
        settings = {**self._options, **self._timeouts} if self._session is None else None
        return FastDriver(self._connect, core.table, core.clock, settings=settings)

    def acquire(
        self,
        entity_id: Who,
        resource: str,
        consume: What,
        *,
        limits: Sequence[Limit] | None = None,
        max_wait: float | None = None,
        on_unavailable: OnUnavailable | None = None,
        also: Sequence[Request] = (),
    ) -> SyncAcquisition:
        """Takes tokens for the length of a `with` block, or of each call of a decorated function.

        Raises RateLimitExceeded if they are not there, after waiting for up to `max_wait`
        seconds. In a decorator, `entity_id` and `consume` may be functions of the call's
        arguments. `consume` may name an operation of the resource (see `set_costs`). `also` adds
        requests that must pass as well: all or nothing.
        """
        wanted = self._wanted(entity_id, resource, consume, limits, max_wait, on_unavailable, also)
        return SyncAcquisition(self._core, self._driver, wanted, entity_id, consume)

    def acquire_all(
        self,
        requests: Sequence[Request],
        *,
        max_wait: float | None = None,
        on_unavailable: OnUnavailable | None = None,
    ) -> SyncAcquisition:
        """Takes from several buckets, all or nothing."""
        wanted = Wanted(tuple(requests), max_wait, on_unavailable)
        return SyncAcquisition(self._core, self._driver, wanted, "", {})

    def acquire_each(
        self,
        groups: Sequence[Sequence[Request]],
        *,
        on_unavailable: OnUnavailable | None = None,
    ) -> list[SyncLease | HeadgateError]:
        """Many acquires side by side, each group all or nothing and on its own: for each, the
        lease or the error that it would have raised. Bad input of any is raised before anything is
        sent. What was taken stays taken: correct or release each lease.
        """
        found = self._driver.run(admit_each(self._core, groups, on_unavailable))
        return [SyncLease(one, self._driver) if isinstance(one, Hold) else one for one in found]

    adjust = sync(settle.adjust)
    release = sync(settle.release)
    check = sync(checks.check)
    available = sync(checks.available)
    time_until_available = sync(checks.time_until_available)
    resolve_limits = sync(admin.resolve_limits)
    set_limits = sync(admin.set_limits)
    get_limits = sync(admin.get_limits)
    delete_limits = sync(admin.delete_limits)
    set_mode = sync(admin.set_mode)
    set_costs = sync(admin.set_costs)
    reset = sync(operate.reset)
    top_up = sync(operate.top_up)
    get_version = sync(migrations.get_version)
    migrate = sync(migrations.migrate)
    require_client = sync(migrations.require_client)
    list_limits = sync(admin.list_limits)
    register_namespace = sync(namespaces.register_namespace)
    get_namespace = sync(namespaces.get_namespace)
    list_namespaces = sync(namespaces.list_namespaces)
    list_orphans = sync(namespaces.list_orphans)
    delete_namespace = sync(namespaces.delete_namespace)
    recover_namespace = sync(namespaces.recover_namespace)
    purge_namespace = sync(namespaces.purge_namespace)
    create_entity = sync(entities.create_entity)
    get_entity = sync(entities.get_entity)
    update_entity = sync(entities.update_entity)
    delete_entity = sync(entities.delete_entity)
    list_children = sync(entities.list_children)
    get_usage_snapshots = sync(usage.get_usage_snapshots)
    get_usage_summary = sync(usage.get_usage_summary)
    get_resource_capacity = sync(capacity.get_resource_capacity)
    get_audit_events = sync(audit.get_audit_events)

    def close(self) -> None:
        """Lets go of connections and threads."""
        self._driver.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _connect(self, service: str = "dynamodb") -> Any:
        if self._injected is not None:
            return self._injected if service == "dynamodb" else None
        import boto3  # noqa: PLC0415 - a tenth of a second that a check of the arguments need not wait
        from botocore.config import Config  # noqa: PLC0415

        session: Any = self._session or boto3.Session()
        settings = Config(**_CLIENT, **self._timeouts, max_pool_connections=128)
        return session.client(service, config=settings, **self._options)


class RateLimiter(_Limiter):
    """A limiter for asyncio, over aiobotocore (the `aio` extra). Its options are those of
    `SyncRateLimiter`; use it on one event loop at a time.
    """

    def _drive(self) -> AioDriver:
        from headgate.drivers.aio import AioDriver  # noqa: PLC0415 - as above
        from headgate.drivers.fast_aio import FastAioDriver  # noqa: PLC0415

        kind = FastAioDriver if self._injected is None else AioDriver
        return kind(self._connect, self._core.table, self._core.clock)

    def acquire(
        self,
        entity_id: Who,
        resource: str,
        consume: What,
        *,
        limits: Sequence[Limit] | None = None,
        max_wait: float | None = None,
        on_unavailable: OnUnavailable | None = None,
        also: Sequence[Request] = (),
    ) -> Acquisition:
        """Takes tokens for the length of an `async with` block, or of each call of a decorated
        coroutine function. See `SyncRateLimiter.acquire`.
        """
        wanted = self._wanted(entity_id, resource, consume, limits, max_wait, on_unavailable, also)
        return Acquisition(self._core, self._driver, wanted, entity_id, consume)

    def acquire_all(
        self,
        requests: Sequence[Request],
        *,
        max_wait: float | None = None,
        on_unavailable: OnUnavailable | None = None,
    ) -> Acquisition:
        """Takes from several buckets, all or nothing."""
        wanted = Wanted(tuple(requests), max_wait, on_unavailable)
        return Acquisition(self._core, self._driver, wanted, "", {})

    async def acquire_each(
        self,
        groups: Sequence[Sequence[Request]],
        *,
        on_unavailable: OnUnavailable | None = None,
    ) -> list[Lease | HeadgateError]:
        """Many acquires side by side, each on its own. See `SyncRateLimiter.acquire_each`."""
        flow = admit_each(self._core, groups, on_unavailable)
        found = await self._driver.run(flow, undo=forgo)
        return [Lease(one, self._driver) if isinstance(one, Hold) else one for one in found]

    adjust = aio(settle.adjust)
    release = aio(settle.release)
    check = aio(checks.check)
    available = aio(checks.available)
    time_until_available = aio(checks.time_until_available)
    resolve_limits = aio(admin.resolve_limits)
    set_limits = aio(admin.set_limits)
    get_limits = aio(admin.get_limits)
    delete_limits = aio(admin.delete_limits)
    set_mode = aio(admin.set_mode)
    set_costs = aio(admin.set_costs)
    reset = aio(operate.reset)
    top_up = aio(operate.top_up)
    get_version = aio(migrations.get_version)
    migrate = aio(migrations.migrate)
    require_client = aio(migrations.require_client)
    list_limits = aio(admin.list_limits)
    register_namespace = aio(namespaces.register_namespace)
    get_namespace = aio(namespaces.get_namespace)
    list_namespaces = aio(namespaces.list_namespaces)
    list_orphans = aio(namespaces.list_orphans)
    delete_namespace = aio(namespaces.delete_namespace)
    recover_namespace = aio(namespaces.recover_namespace)
    purge_namespace = aio(namespaces.purge_namespace)
    create_entity = aio(entities.create_entity)
    get_entity = aio(entities.get_entity)
    update_entity = aio(entities.update_entity)
    delete_entity = aio(entities.delete_entity)
    list_children = aio(entities.list_children)
    get_usage_snapshots = aio(usage.get_usage_snapshots)
    get_usage_summary = aio(usage.get_usage_summary)
    get_resource_capacity = aio(capacity.get_resource_capacity)
    get_audit_events = aio(audit.get_audit_events)

    async def close(self) -> None:
        """Lets go of the connections."""
        await self._driver.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def _connect(self, service: str = "dynamodb") -> Any:
        if self._injected is not None:
            return self._injected if service == "dynamodb" else None
        from aiobotocore.config import AioConfig  # noqa: PLC0415 - the extra may not be there
        from aiobotocore.session import get_session  # noqa: PLC0415

        session: Any = self._session or get_session()
        settings = AioConfig(**_CLIENT, **self._timeouts, max_pool_connections=1_000)
        return session.create_client(service, config=settings, **self._options)


# The SDK repeats nothing: a credit must not be sent twice, and the core knows what may be.
# What is sent is built here, so its shape need not be validated again on every call.
_CLIENT: dict[str, Any] = {
    "retries": {"total_max_attempts": 1, "mode": "standard"},
    "parameter_validation": False,
    "tcp_keepalive": True,
}


def _refuse_retries(client: Any) -> None:
    retries = client.meta.config.retries or {}
    if retries.get("total_max_attempts") != 1:
        raise ValidationError(
            f"an injected client must not retry by itself, and this one does ({retries}): make it "
            "with Config(retries={'total_max_attempts': 1}); what is safe to repeat is repeated"
        )
