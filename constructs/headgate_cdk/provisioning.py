"""Namespaces, entities and limits that are deployed with the stack.

Each is a custom resource of its own, so that CloudFormation plans: it calls for what changed,
takes back what a failed deployment made, and removes what the code no longer has. One function
carries it out with the client's provisioning engine.
"""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Any

from aws_cdk import CustomResource, Duration, Stack
from constructs import Construct

from headgate import schema
from headgate.limit import LimitSet
from headgate_cdk import checks
from headgate_cdk.checks import InvalidOption
from headgate_cdk.functions import make_function
from headgate_cdk.grants import Namespace

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from aws_cdk import RemovalPolicy
    from aws_cdk import aws_lambda as lambda_

    from headgate.limit import Limit
    from headgate_cdk.grants import Grants
    from headgate_cdk.options import FunctionOptions

POLICIES = ("allow", "block")

# A deployment waits this long for the function's answer; the function's own limit is shorter.
PATIENCE = Duration.minutes(5)


class Provisioner(Construct):
    """The function behind the custom resources of one limiter."""

    def __init__(
        self,
        scope: Construct,
        id: str,  # noqa: A002
        *,
        table_name: str,
        grants: Grants,
        layer: lambda_.ILayerVersion,
        functions: FunctionOptions,
    ) -> None:
        super().__init__(scope, id)
        self.function = make_function(
            self,
            "provisioner",
            description="Headgate: namespaces, entities and limits of this stack",
            options=functions,
            memory=256,
            timeout=Duration.minutes(4),
            layer=layer,
            packages=None,
            environment={"HEADGATE_TABLE": table_name},
        )
        grants.admin(self.function)
        self._entities: dict[tuple[str | None, str], CustomResource] = {}

    def namespace(self, name: str, *, removal: RemovalPolicy | None) -> Namespace:
        """A namespace that is registered by the deployment; its id is a token until then."""
        checks.by_client("name", name, schema.namespace_name)
        made = self._resource("Namespace", {"Name": name}, {}, removal)
        return Namespace(name, id=made.get_att_string("NamespaceId"))

    def entity(
        self,
        entity_id: str,
        *,
        namespace: Namespace | None,
        parent_id: str | None,
        cascade: bool,
        name: str | None,
        metadata: Mapping[str, str] | None,
        removal: RemovalPolicy | None,
    ) -> CustomResource:
        """An entity, its parent and what is known about it."""
        checks.by_client("entity_id", entity_id, schema.checked_entity)
        if parent_id is not None:
            checks.by_client("parent_id", parent_id, schema.checked_entity)
        if cascade and parent_id is None:
            raise InvalidOption("cascade", cascade, "needs a parent_id to cascade to")
        where: dict[str, Any] = {"Namespace": _namespace(namespace), "EntityId": entity_id}
        state = {
            "ParentId": parent_id,
            "Cascade": cascade,
            "Name": name,
            "Metadata": dict(metadata) if metadata else None,
        }
        made = self._resource("Entity", where, state, removal)
        self._entities[where["Namespace"], entity_id] = made
        self._after(made, where["Namespace"], parent_id)
        return made

    def limits(
        self,
        limits: Iterable[Limit],
        *,
        namespace: Namespace | None,
        entity_id: str | None,
        resource: str | None,
        on_unavailable: str | None,
        removal: RemovalPolicy | None,
    ) -> CustomResource:
        """The limits of one level."""
        if entity_id is not None:
            checks.by_client("entity_id", entity_id, schema.checked_entity)
        if resource is not None:
            checks.by_client("resource", resource, schema.checked_resource)
        checks.one_of("on_unavailable", on_unavailable, POLICIES)
        if on_unavailable is not None and (entity_id, resource) != (None, None):
            raise InvalidOption(
                "on_unavailable", on_unavailable, "is stored with the system's limits only"
            )
        where: dict[str, Any] = {
            "Namespace": _namespace(namespace),
            "EntityId": entity_id,
            "Resource": resource,
        }
        state = {
            "OnUnavailable": on_unavailable,
            "Limits": [
                {
                    "Name": limit.name,
                    "Capacity": limit.capacity,
                    "RefillAmount": limit.refill_amount,
                    "RefillPeriod": limit.refill_period,
                }
                for limit in _ordered(limits)
            ],
        }
        made = self._resource("Limits", where, state, removal)
        self._after(made, where["Namespace"], entity_id)
        return made

    def _after(self, made: CustomResource, namespace: str | None, entity: str | None) -> None:
        """An entity of this stack comes before its children and limits, and goes after them."""
        if entity is not None and (first := self._entities.get((namespace, entity))):
            made.node.add_dependency(first)

    def _resource(
        self,
        kind: str,
        where: Mapping[str, Any],
        state: Mapping[str, Any],
        removal: RemovalPolicy | None,
    ) -> CustomResource:
        """`where` says which thing it is and makes the logical id; `state` may change."""
        id_ = f"{kind}{self._fingerprint(where)}"
        if self.node.try_find_child(id_) is not None:
            told = ", ".join(f"{key} {value!r}" for key, value in where.items() if value)
            raise InvalidOption(kind.lower(), told or "the system's", "is added already")
        properties = {**where, **state}
        return CustomResource(
            self,
            id_,
            service_token=self.function.function_arn,
            resource_type=f"Custom::Headgate{kind}",
            properties={key: value for key, value in properties.items() if value is not None},
            service_timeout=PATIENCE,
            removal_policy=removal,
        )

    def _fingerprint(self, where: Mapping[str, Any]) -> str:
        # Resolved, since a token's own text depends on how many were made before it.
        text = json.dumps(Stack.of(self).resolve(dict(where)), sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:10].upper()


def _ordered(limits: Iterable[Limit]) -> tuple[Limit, ...]:
    given = tuple(limits)
    try:
        return LimitSet(given).limits
    except ValueError as error:
        raise InvalidOption("limits", given, str(error)) from error


def _namespace(namespace: Namespace | None) -> str | None:
    return None if namespace is None else namespace.id
