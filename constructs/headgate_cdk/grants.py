"""Permissions on the table: what each kind of caller needs, narrowed to a namespace.

| grant   | table                                         | indexes                      |
|---------|-----------------------------------------------|------------------------------|
| acquire | get, batch get, put, update, condition check  | none                         |
| read    | get, batch get, query                         | query all                    |
| admin   | acquire, read, delete, batch write            | query all                    |

A transaction needs the permissions of its parts and none of its own. Nobody may scan: a scan
names no key, so no condition on keys can hold it to a namespace.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from aws_cdk import aws_iam as iam

from headgate import schema
from headgate_cdk import checks
from headgate_cdk.checks import InvalidOption
from headgate_cdk.table import INDEXES

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from aws_cdk import aws_dynamodb as dynamodb
    from aws_cdk import aws_kms as kms

GETS = ("dynamodb:GetItem", "dynamodb:BatchGetItem")
ACQUIRES = (*GETS, "dynamodb:PutItem", "dynamodb:UpdateItem", "dynamodb:ConditionCheckItem")
READS = (*GETS, "dynamodb:Query")
ADMINISTERS = (*ACQUIRES, "dynamodb:Query", "dynamodb:DeleteItem", "dynamodb:BatchWriteItem")


# CDK's own grants on a key have the same actions, written with wildcards.
DECRYPTS = ("kms:Decrypt", "kms:DescribeKey")
ENCRYPTS = (
    *DECRYPTS,
    "kms:Encrypt",
    "kms:GenerateDataKey",
    "kms:GenerateDataKeyWithoutPlaintext",
    "kms:ReEncryptFrom",
    "kms:ReEncryptTo",
)


@dataclass(frozen=True)
class Namespace:
    """A namespace of the table: the name that callers use and the id that its keys start with.

    `limiter.add_namespace(...)` makes one whose id is known after the deployment. One that is
    there already can be written down: `Namespace("team-a", id="h3Zk0a-_9Qw")`.
    """

    name: str
    id: str

    def __post_init__(self) -> None:
        checks.by_client("namespace.name", self.name, schema.namespace_name)
        # An id such as "*" would match the keys of all namespaces.
        checks.by_client("namespace.id", self.id, schema.namespace_id)


class Namespaces:
    """The namespaces that a limiter knows by name."""

    def __init__(self) -> None:
        self._known: dict[str, Namespace] = {}

    def add(self, namespace: Namespace) -> None:
        """Know it from now on."""
        self._known[namespace.name] = namespace

    def find(self, namespace: Namespace | str | None) -> Namespace | None:
        """The namespace that was meant. A name does not tell the id, with which keys start."""
        if namespace is None or isinstance(namespace, Namespace):
            return namespace
        try:
            return self._known[namespace]
        except KeyError:
            raise InvalidOption(
                "namespace",
                namespace,
                "its id is not known here: call add_namespace(...) first, or pass "
                "Namespace(name, id=...)",
            ) from None


class Grants:
    """Grants on one limiter's table. Each returns CDK's `Grant`, as grants of CDK's own do."""

    def __init__(
        self, table: dynamodb.ITable, key: kms.IKey | None, namespaces: Namespaces
    ) -> None:
        self._table = table
        self._key = key
        self._namespaces = namespaces

    def acquire(
        self, grantee: iam.IGrantable, *, namespace: Namespace | str | None = None
    ) -> iam.Grant:
        """What a limited caller needs: acquire, release, adjust, check."""
        return self._grant(grantee, ACQUIRES, (), self._keys(namespace))

    def read(
        self, grantee: iam.IGrantable, *, namespace: Namespace | str | None = None
    ) -> iam.Grant:
        """What a dashboard needs: limits, entities, balances, usage and audit events."""
        return self._grant(grantee, READS, tuple(INDEXES), self._keys(namespace))

    def admin(
        self, grantee: iam.IGrantable, *, namespace: Namespace | str | None = None
    ) -> iam.Grant:
        """What an operator needs: everything in the table, or in one namespace of it.

        Registering and deleting namespaces concerns all of them, and so needs the whole table.
        """
        return self._grant(grantee, ADMINISTERS, tuple(INDEXES), self._keys(namespace))

    def _keys(self, namespace: Namespace | str | None) -> tuple[str, ...] | None:
        found = self._namespaces.find(namespace)
        # GSI4's partition key is the bare id; every other key has something behind it.
        return None if found is None else (f"{found.id}/*", found.id)

    def _grant(
        self,
        grantee: iam.IGrantable,
        actions: Sequence[str],
        indexes: Sequence[str],
        keys: Sequence[str] | None,
    ) -> iam.Grant:
        arn = self._table.table_arn
        if self._key is not None:
            writes = "dynamodb:UpdateItem" in actions
            self._key.grant(grantee, *(ENCRYPTS if writes else DECRYPTS))
        return iam.Grant.add_to_principal(
            grantee=grantee,
            actions=list(actions),
            resource_arns=[arn, *(f"{arn}/index/{index}" for index in indexes)],
            conditions=_only(keys),
        )


def _only(keys: Sequence[str] | None) -> Mapping[str, Mapping[str, Any]] | None:
    """Hold a request to partition keys of these forms: the table's, or the index's it queries."""
    if keys is None:
        return None
    return {
        "ForAllValues:StringLike": {"dynamodb:LeadingKeys": list(keys)},
        # "For all" is also true of no keys at all.
        "Null": {"dynamodb:LeadingKeys": "false"},
    }
