"""The table: keys, indexes, stream and time to live, as the client's schema has them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aws_cdk import RemovalPolicy
from aws_cdk import aws_dynamodb as dynamodb

from headgate_cdk import checks
from headgate_cdk.checks import InvalidOption

if TYPE_CHECKING:
    from aws_cdk import aws_kms as kms
    from constructs import Construct

    from headgate_cdk.options import TableOptions

TTL_ATTRIBUTE = "ttl"

# Only GSI1 holds whole items: those of entities, which change seldom. In the others a balance
# would be written again with every acquire.
INDEXES = {
    "GSI1": dynamodb.ProjectionType.ALL,
    "GSI2": dynamodb.ProjectionType.KEYS_ONLY,
    "GSI3": dynamodb.ProjectionType.KEYS_ONLY,
    "GSI4": dynamodb.ProjectionType.KEYS_ONLY,
}


def make_table(
    scope: Construct,
    *,
    name: str | None,
    removal: RemovalPolicy,
    key: kms.IKey | None,
    options: TableOptions,
) -> dynamodb.Table:
    """The table of one limiter."""
    check_name("table_name", name)
    table = dynamodb.Table(
        scope,
        "Table",
        table_name=name,
        partition_key=_text("PK"),
        sort_key=_text("SK"),
        time_to_live_attribute=TTL_ATTRIBUTE,
        stream=dynamodb.StreamViewType.NEW_AND_OLD_IMAGES,
        billing_mode=dynamodb.BillingMode.PAY_PER_REQUEST,
        max_read_request_units=options.max_read_units,
        max_write_request_units=options.max_write_units,
        warm_throughput=_warm(options),
        encryption=_encryption(options, key),
        encryption_key=key if _uses_key(options, key) else None,
        point_in_time_recovery_specification=dynamodb.PointInTimeRecoverySpecification(
            point_in_time_recovery_enabled=options.point_in_time_recovery,
            recovery_period_in_days=options.recovery_days,
        ),
        deletion_protection=_protected(options, removal),
        contributor_insights_specification=dynamodb.ContributorInsightsSpecification(enabled=True)
        if options.contributor_insights
        else None,
        removal_policy=removal,
    )
    for index, projection in INDEXES.items():
        table.add_global_secondary_index(
            index_name=index,
            partition_key=_text(f"{index}PK"),
            sort_key=_text(f"{index}SK"),
            projection_type=projection,
            max_read_request_units=options.max_read_units,
            max_write_request_units=options.max_write_units,
        )
    return table


def check_name(option: str, name: str | None) -> None:
    """DynamoDB's rule for the names of tables."""
    checks.matches(
        option, name, r"[A-Za-z0-9_.-]{3,255}", "must be 3 to 255 letters, digits, '_', '.' or '-'"
    )


def _text(name: str) -> dynamodb.Attribute:
    return dynamodb.Attribute(name=name, type=dynamodb.AttributeType.STRING)


def _warm(options: TableOptions) -> dynamodb.WarmThroughput | None:
    if options.warm_read_units is None and options.warm_write_units is None:
        return None
    return dynamodb.WarmThroughput(
        read_units_per_second=options.warm_read_units,
        write_units_per_second=options.warm_write_units,
    )


def _uses_key(options: TableOptions, key: kms.IKey | None) -> bool:
    managed = dynamodb.TableEncryption.CUSTOMER_MANAGED
    return key is not None and options.encryption in {None, managed}


def _encryption(options: TableOptions, key: kms.IKey | None) -> dynamodb.TableEncryption:
    if options.encryption is not None:
        if options.encryption == dynamodb.TableEncryption.CUSTOMER_MANAGED and key is None:
            raise InvalidOption(
                "table.encryption",
                options.encryption.name,
                "needs the key itself: give the limiter an encryption_key",
            )
        return options.encryption
    return (
        dynamodb.TableEncryption.DEFAULT
        if key is None
        else dynamodb.TableEncryption.CUSTOMER_MANAGED
    )


def _protected(options: TableOptions, removal: RemovalPolicy) -> bool:
    destroyed = removal == RemovalPolicy.DESTROY
    if options.deletion_protection and destroyed:
        raise InvalidOption(
            "table.deletion_protection",
            options.deletion_protection,
            "contradicts removal_policy DESTROY, which could then never be carried out",
        )
    return not destroyed if options.deletion_protection is None else options.deletion_protection
