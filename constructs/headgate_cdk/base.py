"""What a limiter offers to a CDK app, whether it is made there or deployed elsewhere."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from aws_cdk import Stack
from aws_cdk import aws_lambda as lambda_
from constructs import Construct

from headgate_cdk import checks
from headgate_cdk.checks import InvalidOption
from headgate_cdk.grants import Grants, Namespace, Namespaces
from headgate_cdk.layer import layer_of_stack, make_layer
from headgate_cdk.monitoring import TableMetrics
from headgate_cdk.options import FunctionOptions
from headgate_cdk.provisioning import POLICIES, Provisioner

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from aws_cdk import CustomResource, RemovalPolicy
    from aws_cdk import aws_cloudwatch as cloudwatch
    from aws_cdk import aws_dynamodb as dynamodb
    from aws_cdk import aws_kms as kms

    from headgate.limit import Limit

Access = Literal["acquire", "read", "admin"]
ACCESS: tuple[Access, ...] = ("acquire", "read", "admin")


class RateLimiterBase(Construct):
    """A limiter: its table, its layer, who may use it, and what is stored in it.

    Not made directly: `RateLimiter` deploys one, `RateLimiter.from_attributes` and
    `RateLimiter.from_name` refer to one that is there.
    """

    table: dynamodb.ITable
    """The table."""
    stream: str | None
    """The ARN of the table's stream, if it is known."""
    grants: Grants
    """Permissions for callers, dashboards and operators."""

    def __init__(self, scope: Construct, id: str) -> None:  # noqa: A002
        super().__init__(scope, id)
        self._namespaces = Namespaces()
        self._functions = FunctionOptions()
        self._provisioner: Provisioner | None = None
        self._layer: lambda_.ILayerVersion | None = None

    @property
    def layer(self) -> lambda_.ILayerVersion:
        """The client as a Lambda layer, made when it is first asked for."""
        if self._layer is None:
            self._layer = self._make_layer()
        return self._layer

    def _make_layer(self) -> lambda_.ILayerVersion:
        return make_layer(self)

    def _set_table(self, table: dynamodb.ITable, stream: str | None, key: kms.IKey | None) -> None:
        self.table = table
        self.stream = stream
        self.grants = Grants(table, key, self._namespaces)
        self._metrics = TableMetrics(table)

    # --- functions that use it ---

    def attach(
        self,
        function: lambda_.Function,
        *,
        namespace: Namespace | str | None = None,
        access: Access = "acquire",
        on_unavailable: str | None = None,
        layer: bool = True,
    ) -> None:
        """Let a function use the limiter: the layer, the environment and the least grant.

        In the function, `SyncRateLimiter.from_env()` then needs no arguments.

        Args:
            function: A function with a Python runtime.
            namespace: What `add_namespace` returned, or its name: the grant is narrowed to it.
                Default: the default namespace, with a grant on the whole table.
            access: "acquire" for callers, "read" for dashboards, "admin" for operators.
            on_unavailable: "allow" or "block" when the table cannot be reached. Default: what
                the stored limits say, else "block".
            layer: Whether to add the layer. A container image cannot have one: install headgate
                in the image and pass False.
        """
        checks.one_of("access", access, ACCESS)
        _check_function(function, layer=layer)
        settings = self.environment(namespace=namespace, on_unavailable=on_unavailable)
        for name, value in settings.items():
            function.add_environment(name, value)
        if layer:
            function.add_layers(self._layer_for(function))
        getattr(self.grants, access)(function, namespace=namespace)

    def environment(
        self,
        *,
        namespace: Namespace | str | None = None,
        on_unavailable: str | None = None,
    ) -> dict[str, str]:
        """What `from_env()` reads, for callers that are no functions: containers, instances."""
        checks.one_of("on_unavailable", on_unavailable, POLICIES)
        settings = {"HEADGATE_TABLE": self.table.table_name}
        if found := self._namespaces.find(namespace):
            settings["HEADGATE_NAMESPACE"] = found.name
            # With the id the client need not look it up, where the grant could not let it.
            settings["HEADGATE_NAMESPACE_ID"] = found.id
        if on_unavailable is not None:
            settings["HEADGATE_ON_UNAVAILABLE"] = on_unavailable
        return settings

    def _layer_for(self, function: lambda_.Function) -> lambda_.ILayerVersion:
        stack = Stack.of(function)
        return self.layer if Stack.of(self) == stack else layer_of_stack(stack)

    # --- what is stored in it ---

    def add_namespace(self, name: str, *, removal_policy: RemovalPolicy | None = None) -> Namespace:
        """Register a namespace on deployment. One of that name which is there already is used.

        Removing it from the code deletes the namespace if this made it (it can be recovered),
        unless the removal policy is RETAIN.
        """
        namespace = self._provision().namespace(name, removal=removal_policy)
        self._namespaces.add(namespace)
        return namespace

    def add_entity(
        self,
        entity_id: str,
        *,
        namespace: Namespace | str | None = None,
        parent_id: str | None = None,
        cascade: bool = False,
        name: str | None = None,
        metadata: Mapping[str, str] | None = None,
        removal_policy: RemovalPolicy | None = None,
    ) -> CustomResource:
        """Create an entity on deployment. Fails if there is another one with that id."""
        return self._provision().entity(
            entity_id,
            namespace=self._namespaces.find(namespace),
            parent_id=parent_id,
            cascade=cascade,
            name=name,
            metadata=metadata,
            removal=removal_policy,
        )

    def add_limits(
        self,
        limits: Iterable[Limit],
        *,
        namespace: Namespace | str | None = None,
        entity_id: str | None = None,
        resource: str | None = None,
        on_unavailable: str | None = None,
        removal_policy: RemovalPolicy | None = None,
    ) -> CustomResource:
        """Set the limits of one level on deployment.

        The level is what is given: nothing for the system's defaults, a resource for its
        defaults, an entity for all its resources, both for one. Fails if the level has other
        limits that this stack did not set.
        """
        return self._provision().limits(
            limits,
            namespace=self._namespaces.find(namespace),
            entity_id=entity_id,
            resource=resource,
            on_unavailable=on_unavailable,
            removal=removal_policy,
        )

    def _provision(self) -> Provisioner:
        if self._provisioner is None:
            self._provisioner = Provisioner(
                self,
                "Provisioner",
                table_name=self.table.table_name,
                grants=self.grants,
                layer=self.layer,
                functions=self._functions,
            )
        return self._provisioner

    # --- what to watch ---

    def metric_admitted(self) -> cloudwatch.Metric:
        """Acquires that were let in, as the aggregator counts them."""
        return self._metrics.admitted()

    def metric_rejected(self) -> cloudwatch.Metric:
        """Writes whose condition failed: rejections, and a few wrong guesses."""
        return self._metrics.rejected()

    def metric_throttled_reads(self, index: str | None = None) -> cloudwatch.Metric:
        """Reads that DynamoDB throttled, of the table or of an index."""
        return self._metrics.throttled("Read", index)

    def metric_throttled_writes(self, index: str | None = None) -> cloudwatch.Metric:
        """Writes that DynamoDB throttled, of the table or of an index."""
        return self._metrics.throttled("Write", index)

    def metric_consumed_read_units(self, index: str | None = None) -> cloudwatch.Metric:
        """Read units, of the table or of an index."""
        return self._metrics.consumed("Read", index)

    def metric_consumed_write_units(self, index: str | None = None) -> cloudwatch.Metric:
        """Write units, of the table or of an index."""
        return self._metrics.consumed("Write", index)

    def metric_latency(self, statistic: str = "p99") -> cloudwatch.Metric:
        """How long DynamoDB took for a write, in milliseconds."""
        return self._metrics.latency(statistic)


def _check_function(function: object, *, layer: bool) -> None:
    if not isinstance(function, lambda_.Function):
        raise InvalidOption(
            "function",
            function,
            "must be a Function of this app: an imported one cannot be changed; "
            "use grants and environment() where it is defined",
        )
    if layer and function.runtime.family != lambda_.RuntimeFamily.PYTHON:
        raise InvalidOption(
            "function.runtime",
            function.runtime.name,
            "must be a Python runtime to use the layer; for a container image with headgate "
            "installed, pass layer=False",
        )
