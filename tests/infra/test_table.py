"""The table: what the client's schema asks for, and every option of it."""

import pytest
from aws_cdk import CfnParameter, RemovalPolicy
from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_kms as kms

from headgate.schema import table_definition
from headgate_cdk import InvalidOption, RateLimiter, TableOptions

TABLE = "AWS::DynamoDB::Table"


def table(template):
    return template.only(TABLE)


def bare(stack, **options):
    """Without the parts that a test of the table does not look at."""
    return RateLimiter(
        stack, "Limiter", aggregator=False, archive=False, alarms=False, dashboard=False, **options
    )


def test_the_table_is_the_one_that_the_client_defines(default):
    wanted = table_definition("any")
    made = table(default)
    for same in ("KeySchema", "AttributeDefinitions", "GlobalSecondaryIndexes", "BillingMode"):
        assert made[same] == wanted[same]
    view = wanted["StreamSpecification"]["StreamViewType"]
    assert made["StreamSpecification"] == {"StreamViewType": view}


def test_only_the_index_of_entities_holds_whole_items(default):
    projections = {
        index["IndexName"]: index["Projection"]["ProjectionType"]
        for index in table(default)["GlobalSecondaryIndexes"]
    }
    assert projections == {
        "GSI1": "ALL",
        "GSI2": "KEYS_ONLY",
        "GSI3": "KEYS_ONLY",
        "GSI4": "KEYS_ONLY",
    }


def test_by_default_data_expires_and_survives_mistakes(default):
    made = table(default)
    assert made["TimeToLiveSpecification"] == {"AttributeName": "ttl", "Enabled": True}
    assert made["PointInTimeRecoverySpecification"] == {"PointInTimeRecoveryEnabled": True}
    assert made["DeletionProtectionEnabled"] is True
    assert made["SSESpecification"] == {"SSEEnabled": False}  # a key that AWS owns
    assert "TableName" not in made
    (resource,) = default.of(TABLE).values()
    assert resource["DeletionPolicy"] == resource["UpdateReplacePolicy"] == "Retain"


def test_every_option_of_the_table_reaches_it(stack, template_of):
    bare(
        stack,
        table_name="limits",
        table=TableOptions(
            max_read_units=100,
            max_write_units=200,
            warm_read_units=12_000,
            warm_write_units=4_000,
            encryption=dynamodb.TableEncryption.AWS_MANAGED,
            recovery_days=7,
            deletion_protection=False,
            contributor_insights=True,
        ),
    )
    made = table(template_of(stack))
    cap = {"MaxReadRequestUnits": 100, "MaxWriteRequestUnits": 200}
    assert made["TableName"] == "limits"
    assert made["OnDemandThroughput"] == cap
    assert [i["OnDemandThroughput"] for i in made["GlobalSecondaryIndexes"]] == [cap] * 4
    assert made["WarmThroughput"] == {"ReadUnitsPerSecond": 12_000, "WriteUnitsPerSecond": 4_000}
    assert made["SSESpecification"] == {"SSEEnabled": True}
    assert made["PointInTimeRecoverySpecification"] == {
        "PointInTimeRecoveryEnabled": True,
        "RecoveryPeriodInDays": 7,
    }
    assert made["DeletionProtectionEnabled"] is False
    assert made["ContributorInsightsSpecification"] == {"Enabled": True}


def test_backups_can_be_switched_off(stack, template_of):
    bare(stack, table=TableOptions(point_in_time_recovery=False))
    made = table(template_of(stack))
    assert made["PointInTimeRecoverySpecification"] == {"PointInTimeRecoveryEnabled": False}


def test_a_table_that_is_to_be_destroyed_is_not_protected(stack, template_of):
    bare(stack, removal_policy=RemovalPolicy.DESTROY)
    template = template_of(stack)
    (resource,) = template.of(TABLE).values()
    assert resource["DeletionPolicy"] == "Delete"
    assert resource["Properties"]["DeletionProtectionEnabled"] is False


def test_a_given_key_encrypts_the_table(stack, template_of):
    bare(stack, encryption_key=kms.Key(stack, "Key"))
    specification = table(template_of(stack))["SSESpecification"]
    assert specification["SSEType"] == "KMS"
    assert specification["KMSMasterKeyId"]["Fn::GetAtt"][0].startswith("Key")


def test_a_given_key_can_be_kept_from_the_table(stack, template_of):
    managed = TableOptions(encryption=dynamodb.TableEncryption.AWS_MANAGED)
    bare(stack, encryption_key=kms.Key(stack, "Key"), table=managed)
    assert table(template_of(stack))["SSESpecification"] == {"SSEEnabled": True}


def test_values_that_are_not_known_yet_pass_through(stack, template_of):
    name = CfnParameter(stack, "Name").value_as_string
    units = CfnParameter(stack, "Units", type="Number").value_as_number
    bare(stack, table_name=name, table=TableOptions(max_write_units=units))
    made = table(template_of(stack))
    assert made["TableName"] == {"Ref": "Name"}
    assert made["OnDemandThroughput"] == {"MaxWriteRequestUnits": {"Ref": "Units"}}


@pytest.mark.parametrize(
    ("option", "value", "allowed"),
    [
        ("max_read_units", 0, "from 1 to"),
        ("max_write_units", 1.5, "whole number"),
        ("warm_read_units", 11_999, "from 12000 to"),
        ("warm_write_units", 3_999, "from 4000 to"),
        ("recovery_days", 36, "from 1 to 35"),
        ("recovery_days", True, "whole number"),
    ],
)
def test_a_number_that_dynamodb_would_refuse_is_refused_at_once(option, value, allowed):
    with pytest.raises(InvalidOption, match=allowed) as refused:
        TableOptions(**{option: value})
    assert refused.value.property == f"table.{option}"
    assert refused.value.value is value
    assert f"table.{option} is {value!r}" in str(refused.value)


def test_days_of_backups_without_backups_are_refused():
    with pytest.raises(InvalidOption, match=r"table.recovery_days is 7: has no meaning"):
        TableOptions(point_in_time_recovery=False, recovery_days=7)


@pytest.mark.parametrize("name", ["ab", "a" * 256, "no spaces", "no/slashes", ""])
def test_a_name_that_no_table_can_have_is_refused(stack, name):
    with pytest.raises(InvalidOption, match=r"table_name is '.*': must be 3 to 255"):
        bare(stack, table_name=name)


def test_protection_and_destruction_contradict_each_other(stack):
    with pytest.raises(InvalidOption, match="contradicts removal_policy DESTROY"):
        bare(
            stack,
            removal_policy=RemovalPolicy.DESTROY,
            table=TableOptions(deletion_protection=True),
        )


def test_encryption_by_a_key_of_your_own_needs_the_key(stack):
    own = TableOptions(encryption=dynamodb.TableEncryption.CUSTOMER_MANAGED)
    with pytest.raises(InvalidOption, match="give the limiter an encryption_key"):
        bare(stack, table=own)
