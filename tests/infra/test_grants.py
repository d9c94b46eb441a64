"""Permissions: enough for what the client does, and no key of another namespace."""

import boto3
import pytest
from aws_cdk import CfnParameter
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from botocore.config import Config

from headgate import Limit, RateLimitExceeded, Request, SyncRateLimiter, schema
from headgate_cdk import InvalidOption, Namespace, RateLimiter
from tests.infra.iam import Asked, allowed, as_list, requests

MINE = Namespace("mine", id="AAAAAAAAAAA")
YOURS = "BBBBBBBBBBB"
INDEXES = ("GSI1", "GSI2", "GSI3", "GSI4")
ACCESS = ("acquire", "read", "admin")


def role(stack, name="Caller"):
    return iam.Role(stack, name, assumed_by=iam.ServicePrincipal("lambda.amazonaws.com"))


@pytest.fixture(scope="module")
def granted(new_stack, template_of):
    """Statements of each grant, on all of the table and on one namespace, and the table's ARN."""
    stack = new_stack("Granted")
    limiter = RateLimiter(stack, "Limiter", table_name="limits")
    for access in ACCESS:
        getattr(limiter.grants, access)(role(stack, f"All{access}"))
        getattr(limiter.grants, access)(role(stack, f"Mine{access}"), namespace=MINE)
    template = template_of(stack)
    statements = {
        f"{whose}{access}": template.statements(f"{whose}{access}")
        for whose in ("All", "Mine")
        for access in ACCESS
    }
    (table,) = template.of("AWS::DynamoDB::Table")
    return statements, template.resolve({"Fn::GetAtt": [table, "Arn"]})


def dynamodb_keys(ns):
    """A key of each kind that the table or an index has, in a namespace."""
    return [
        schema.pk_entity(ns, "user-1"),
        schema.pk_resource(ns, "gpt-4"),
        schema.pk_system(ns),
        schema.gsi3_pk_entity_config(ns, "gpt-4"),
        schema.BucketRef(ns, "user-1", "gpt-4").pk(0),
        f"{ns}/PARENT#org-1",
        f"{ns}/AUDIT#user-1",
        ns,
    ]


@pytest.mark.parametrize("access", ACCESS)
def test_a_namespace_opens_its_own_keys_and_no_others(granted, access):
    statements, arn = granted
    mine = statements[f"Mine{access}"]
    actions = {action for statement in mine for action in statement["Action"]}
    resources = [arn, *(f"{arn}/index/{index}" for index in INDEXES)]
    strangers = [
        *dynamodb_keys(YOURS),
        "_/SYSTEM#",  # the registry tells the names of all namespaces
        f"{MINE.id}x/SYSTEM#",
        f"{YOURS}/ENTITY#{MINE.id}/SYSTEM",
    ]
    for action in actions:
        assert any(allowed(mine, Asked(action, arn, (key,))) for key in dynamodb_keys(MINE.id))
        for resource in resources:
            for key in strangers:
                assert not allowed(mine, Asked(action, resource, (key,)))
                # One key of ours does not carry another along.
                both = (schema.pk_system(MINE.id), key)
                assert not allowed(mine, Asked(action, resource, both))
            assert not allowed(mine, Asked(action, resource, ()))


@pytest.mark.parametrize("access", ACCESS)
@pytest.mark.parametrize("whose", ["All", "Mine"])
def test_nobody_may_scan_or_touch_the_table_itself(granted, whose, access):
    statements, arn = granted
    for action in ("Scan", "PartiQLSelect", "DeleteTable", "UpdateTable", "UpdateTimeToLive"):
        for key in ((), (MINE.id,)):
            assert not allowed(statements[whose + access], Asked(f"dynamodb:{action}", arn, key))


def test_acquiring_opens_no_index_and_deletes_nothing(granted):
    statements, arn = granted
    for index in INDEXES:
        asked = Asked("dynamodb:Query", f"{arn}/index/{index}", (MINE.id,))
        assert not allowed(statements["Allacquire"], asked)
    key = (schema.pk_system(MINE.id),)
    for action in ("dynamodb:Query", "dynamodb:DeleteItem", "dynamodb:BatchWriteItem"):
        assert not allowed(statements["Allacquire"], Asked(action, arn, key))


def test_reading_writes_nothing(granted):
    statements, arn = granted
    key = (schema.pk_system(MINE.id),)
    for action in ("PutItem", "UpdateItem", "DeleteItem", "BatchWriteItem"):
        assert not allowed(statements["Allread"], Asked(f"dynamodb:{action}", arn, key))


@pytest.fixture(scope="module")
def recorded(ministack):
    """A limiter on a real table that notes down every request it makes."""
    client = boto3.client(
        "dynamodb",
        endpoint_url=ministack.endpoint_url,
        config=Config(retries={"total_max_attempts": 1}),
    )
    client.create_table(**schema.table_definition("recorded-grants"))
    made = []

    def note(params, model, **_):
        made.append((model.name, params))

    client.meta.events.register("provide-client-params.dynamodb.*", note)
    limiter = SyncRateLimiter("recorded-grants", namespace_id=MINE.id, client=client)
    yield limiter, made
    limiter.close()


def seen_in(made, act):
    made.clear()
    act()
    assert made
    return list(made)


def test_the_grant_to_acquire_suffices_for_all_that_a_caller_does(granted, recorded):
    statements, arn = granted
    limiter, made = recorded
    limits = [Limit.per_minute("rpm", 10)]

    def call():
        with limiter.acquire("user-1", "gpt-4", {"rpm": 4}, limits=limits) as lease:
            lease.adjust(rpm=1)
            lease.release(rpm=2)
        limiter.check("user-1", "gpt-4", {"rpm": 1})
        with (
            pytest.raises(RateLimitExceeded),
            limiter.acquire("user-1", "gpt-4", {"rpm": 11}, limits=limits),
        ):
            pass
        with limiter.acquire("user-2", "gpt-4", {"rpm": 1}, limits=limits):
            pass

    for operation, params in seen_in(made, call):
        for asked in requests(operation, params, arn):
            assert allowed(statements["Mineacquire"], asked), asked


def test_the_grant_to_acquire_suffices_to_settle_later(granted, recorded):
    statements, arn = granted
    limiter, made = recorded
    limiter.set_limits([Limit.per_minute("rpm", 10), Limit.per_minute("tpm", 90)], resource="later")

    def call():
        (lease,) = limiter.acquire_each([[Request("user-1", "later", {"rpm": 4, "tpm": 50})]])
        corrected = limiter.adjust(lease.ticket(), {"rpm": 1, "tpm": -20})
        limiter.release(corrected.ticket)

    seen = seen_in(made, call)
    assert "TransactWriteItems" in {operation for operation, _ in seen}
    for operation, params in seen:
        for asked in requests(operation, params, arn):
            assert allowed(statements["Mineacquire"], asked), asked


def test_the_grant_to_administer_suffices_for_all_that_an_operator_does(granted, recorded):
    statements, arn = granted
    limiter, made = recorded

    def call():
        limiter.set_limits([Limit.per_minute("rpm", 5)])
        limiter.set_limits([Limit.per_minute("rpm", 6)], resource="gpt-4")
        limiter.set_limits([Limit.per_minute("rpm", 7)], entity_id="user-1")
        limiter.list_limits()
        limiter.list_limits(resource="gpt-4")
        limiter.list_limits(entity_id="user-1")
        limiter.delete_limits(entity_id="user-1")

    for operation, params in seen_in(made, call):
        for asked in requests(operation, params, arn):
            assert allowed(statements["Mineadmin"], asked), asked


def test_the_grant_to_read_suffices_for_a_dashboard(granted, recorded):
    statements, arn = granted
    limiter, made = recorded
    limiter.set_limits([Limit.per_minute("rpm", 6)], resource="gpt-4")

    def call():
        limiter.list_limits()
        limiter.get_limits(resource="gpt-4")
        limiter.resolve_limits("user-1", "gpt-4")
        limiter.available("user-1", "gpt-4")

    for operation, params in seen_in(made, call):
        for asked in requests(operation, params, arn):
            assert allowed(statements["Mineread"], asked), asked


@pytest.mark.parametrize("bad", ["*", "??????????*", "AAAAAAAAAA*", "", "_", "short", "${aws:x}ab"])
def test_an_id_that_would_open_other_namespaces_is_refused(bad):
    with pytest.raises(InvalidOption, match=r"namespace.id is"):
        Namespace("mine", id=bad)


def test_a_name_whose_id_is_not_known_is_refused(stack):
    limiter = RateLimiter(stack, "Limiter")
    with pytest.raises(InvalidOption, match="namespace is 'mine': its id is not known here"):
        limiter.grants.acquire(role(stack), namespace="mine")


def test_a_namespace_may_have_an_id_that_is_known_after_the_deployment(stack, template_of):
    limiter = RateLimiter(stack, "Limiter")
    later = Namespace("mine", id=CfnParameter(stack, "Id").value_as_string)
    limiter.grants.acquire(role(stack), namespace=later)
    (statement,) = template_of(stack).statements("Caller")
    assert statement["Condition"]["ForAllValues:StringLike"] == {
        "dynamodb:LeadingKeys": ["Id/*", "Id"]
    }


def test_a_grant_is_cdks_own(stack):
    grant = RateLimiter(stack, "Limiter").grants.acquire(role(stack))
    assert isinstance(grant, iam.Grant)
    assert grant.success


@pytest.mark.parametrize(
    ("access", "may_encrypt"), [("acquire", True), ("read", False), ("admin", True)]
)
def test_a_key_of_your_own_opens_with_the_table(stack, template_of, access, may_encrypt):
    limiter = RateLimiter(stack, "Limiter", encryption_key=kms.Key(stack, "Key"))
    getattr(limiter.grants, access)(role(stack))
    on_key = [
        action
        for statement in template_of(stack).statements("Caller")
        for action in as_list(statement["Action"])
        if action.startswith("kms:")
    ]
    assert "kms:Decrypt" in on_key
    assert ("kms:GenerateDataKey" in on_key) == may_encrypt


def test_a_limiter_deployed_elsewhere_grants_the_same_with_its_indexes(stack, template_of):
    limiter = RateLimiter.from_name(stack, "Limiter", "limits")
    limiter.grants.admin(role(stack), namespace=MINE)
    (statement,) = template_of(stack).statements("Caller")
    table, *indexes = statement["Resource"]
    assert table.endswith(":table/limits")
    assert indexes == [f"{table}/index/{index}" for index in INDEXES]
    assert allowed([statement], Asked("dynamodb:Query", indexes[3], (MINE.id,)))
