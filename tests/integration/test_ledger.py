"""The ledger of provisioned records, on both engines: DynamoDB takes its expressions."""

import boto3
import pytest
from botocore.config import Config

from headgate.ledger import Claims
from headgate.provision import Provisioner
from headgate.schema import table_definition

LABEL = "limits##gpt-4"


@pytest.fixture(params=["ministack", "dynalite"])
def limiter(request):
    running = request.getfixturevalue(request.param)
    client = boto3.client(
        "dynamodb",
        endpoint_url=running.endpoint_url,
        config=Config(retries={"total_max_attempts": 1}),
    )
    definition = table_definition(f"ledger-{request.param}")
    if request.param == "dynalite":
        del definition["StreamSpecification"]
        # It does not know this parameter, and so never shows the item of a failed condition.
        client.meta.events.register(
            "provide-client-params.dynamodb.UpdateItem",
            lambda params, **_: {
                name: value
                for name, value in params.items()
                if name != "ReturnValuesOnConditionCheckFailure"
            },
        )
    client.create_table(**definition)
    client.get_waiter("table_exists").wait(TableName=definition["TableName"])
    with Provisioner(definition["TableName"], namespace_id="AAAAAAAAAAA", client=client) as made:
        yield made
        client.delete_table(TableName=definition["TableName"])
    client.close()


@pytest.mark.parametrize("registry", [False, True])
def test_a_made_record_goes_with_its_last_owner(limiter, registry):
    assert limiter.claims(LABEL, registry=registry) == Claims()
    limiter.claim(LABEL, "one", made=True, registry=registry)
    limiter.claim(LABEL, "other", made=False, registry=registry)
    both = Claims(frozenset({"one", "other"}), made=True)
    assert limiter.claims(LABEL, registry=registry) == both

    assert limiter.disclaim(LABEL, "one", registry=registry) is False
    assert limiter.disclaim(LABEL, "stranger", registry=registry) is False
    limiter.forget(LABEL, registry=registry)  # somebody claims it still
    assert limiter.disclaim(LABEL, "other", registry=registry) is True
    limiter.forget(LABEL, registry=registry)
    assert limiter.claims(LABEL, registry=registry) == Claims()
    limiter.forget(LABEL, registry=registry)


def test_a_found_record_stays(limiter):
    limiter.claim(LABEL, "one", made=False)
    limiter.claim(LABEL, "one", made=True)  # sent twice: the first tells how it was
    assert limiter.disclaim(LABEL, "one") is False


def test_a_namespace_is_not_the_registry(limiter):
    limiter.claim(LABEL, "one", made=True)
    assert limiter.claims(LABEL, registry=True) == Claims()


@pytest.mark.parametrize("limiter", ["ministack"], indirect=True)
def test_a_deletion_that_is_repeated_says_the_same(limiter):
    limiter.claim(LABEL, "one", made=True)
    assert limiter.disclaim(LABEL, "one") is True
    assert limiter.disclaim(LABEL, "one") is True
