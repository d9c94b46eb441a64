"""Limits, entities and namespaces as resources of the stack."""

import pytest
from aws_cdk import CfnParameter, RemovalPolicy

from headgate import Limit
from headgate_cdk import InvalidOption, Namespace, RateLimiter

LIMITS = "Custom::HeadgateLimits"
ENTITY = "Custom::HeadgateEntity"
NAMESPACE = "Custom::HeadgateNamespace"

RPM = Limit.per_minute("rpm", 600, burst=900)
TPM = Limit.per_minute("tpm", 100_000)


@pytest.fixture
def limiter(stack):
    return RateLimiter(
        stack, "Limiter", aggregator=False, archive=False, alarms=False, dashboard=False
    )


def properties(template, kind):
    """Of each resource of this type, without what all of them have."""
    return [
        {
            name: value
            for name, value in resource["Properties"].items()
            if name not in {"ServiceToken", "ServiceTimeout"}
        }
        for resource in template.of(kind).values()
    ]


def test_limits_of_each_level_say_which_level_they_are(limiter, stack, template_of):
    limiter.add_limits([TPM, RPM], on_unavailable="allow")
    limiter.add_limits([RPM], resource="gpt-4")
    limiter.add_limits([RPM], entity_id="user-1")
    limiter.add_limits([RPM], entity_id="user-1", resource="gpt-4")
    rpm = {"Name": "rpm", "Capacity": 900, "RefillAmount": 600, "RefillPeriod": 60}
    tpm = {"Name": "tpm", "Capacity": 100_000, "RefillAmount": 100_000, "RefillPeriod": 60}
    assert properties(template_of(stack), LIMITS) == [
        {"OnUnavailable": "allow", "Limits": [rpm, tpm]},
        {"Resource": "gpt-4", "Limits": [rpm]},
        {"EntityId": "user-1", "Limits": [rpm]},
        {"EntityId": "user-1", "Resource": "gpt-4", "Limits": [rpm]},
    ]


def test_changing_limits_keeps_the_resource_that_they_are(new_stack, template_of):
    ids = set()
    for amount in (10, 20):
        stack = new_stack()
        limiter = RateLimiter(stack, "Limiter")
        limiter.add_limits([Limit.per_minute("rpm", amount)], resource="gpt-4")
        ids |= set(template_of(stack).of(LIMITS))
    assert len(ids) == 1


def test_a_namespaces_id_comes_back_for_limits_and_grants(limiter, stack, template_of):
    team = limiter.add_namespace("team-a")
    limiter.add_limits([RPM], namespace=team)
    limiter.add_limits([RPM], namespace="team-a", resource="gpt-4")
    template = template_of(stack)
    ((name, resource),) = template.of(NAMESPACE).items()
    assert resource["Properties"]["Name"] == "team-a"
    token = {"Fn::GetAtt": [name, "NamespaceId"]}
    assert [made["Namespace"] for made in properties(template, LIMITS)] == [token, token]
    assert limiter.environment(namespace="team-a")["HEADGATE_NAMESPACE"] == "team-a"


def test_entities_come_before_their_children_and_limits(limiter, stack, template_of):
    limiter.add_entity("org-1", name="The organisation", metadata={"plan": "gold"})
    limiter.add_entity("user-1", parent_id="org-1", cascade=True)
    limiter.add_limits([RPM], entity_id="user-1")
    template = template_of(stack)
    organisation, user = template.of(ENTITY)
    assert properties(template, ENTITY) == [
        {
            "EntityId": "org-1",
            "Cascade": False,
            "Name": "The organisation",
            "Metadata": {"plan": "gold"},
        },
        {"EntityId": "user-1", "ParentId": "org-1", "Cascade": True},
    ]
    assert organisation in template.resources[user]["DependsOn"]
    (limits,) = template.of(LIMITS).values()
    assert user in limits["DependsOn"]


def test_one_function_carries_it_all_out_with_the_layer_and_a_patience_that_ends(
    limiter, stack, template_of
):
    limiter.add_namespace("team-a")
    limiter.add_limits([RPM])
    template = template_of(stack)
    ((name, _),) = template.of("AWS::Lambda::Function").items()
    function = template.only("AWS::Lambda::Function")
    assert function["Handler"] == "provisioner.handler.handler"
    assert len(function["Layers"]) == 1
    for kind in (NAMESPACE, LIMITS):
        (resource,) = template.of(kind).values()
        assert resource["Properties"]["ServiceToken"] == {"Fn::GetAtt": [name, "Arn"]}
        assert int(resource["Properties"]["ServiceTimeout"]) > function["Timeout"]


def test_nothing_to_provision_needs_no_function(limiter, stack, template_of):
    assert template_of(stack).count("AWS::Lambda::Function") == 0


def test_what_is_provisioned_goes_with_the_stack_unless_it_is_to_stay(limiter, stack, template_of):
    limiter.add_limits([RPM])
    limiter.add_limits([RPM], resource="gpt-4", removal_policy=RemovalPolicy.RETAIN)
    policies = [made["DeletionPolicy"] for made in template_of(stack).of(LIMITS).values()]
    assert policies == ["Delete", "Retain"]


def test_a_limiter_deployed_elsewhere_can_be_provisioned_from_here(stack, template_of):
    limiter = RateLimiter.from_name(stack, "Limiter", "limits")
    limiter.add_namespace("team-a")
    template = template_of(stack)
    variables = template.only("AWS::Lambda::Function")["Environment"]["Variables"]
    assert variables["HEADGATE_TABLE"] == "limits"


def test_names_that_are_not_known_yet_give_stable_resources(new_stack, template_of):
    def synthesize(*, tokens_before):
        stack = new_stack()
        limiter = RateLimiter(stack, "Limiter")
        for number in range(tokens_before):
            assert CfnParameter(stack, f"Other{number}").value_as_string
        who = CfnParameter(stack, "Who").value_as_string
        limiter.add_limits([RPM], entity_id=who)
        return template_of(stack)

    one, other = synthesize(tokens_before=0), synthesize(tokens_before=3)
    assert properties(one, LIMITS)[0]["EntityId"] == {"Ref": "Who"}
    assert set(one.of(LIMITS)) == set(other.of(LIMITS))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"limits": []}, r"limits is \(\): a bucket has from 1 to"),
        ({"limits": [RPM, RPM]}, "two limits have one name"),
        ({"entity_id": "a#b"}, r"entity_id is 'a#b': entity_id must be"),
        ({"resource": "_default_"}, "resource is '_default_': .* reserved"),
        ({"on_unavailable": "maybe"}, "on_unavailable is 'maybe': must be one of allow, block"),
        (
            {"on_unavailable": "allow", "resource": "gpt-4"},
            "on_unavailable is 'allow': is stored with the system's limits only",
        ),
        ({"namespace": "team-a"}, "namespace is 'team-a': its id is not known here"),
    ],
)
def test_limits_that_the_client_would_refuse_are_refused_at_once(limiter, given, message):
    with pytest.raises(InvalidOption, match=message):
        limiter.add_limits(**{"limits": [RPM], **given})


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"entity_id": ""}, "entity_id is ''"),
        ({"entity_id": "user-1", "parent_id": "a#b"}, "parent_id is 'a#b'"),
        ({"entity_id": "user-1", "cascade": True}, "cascade is True: needs a parent_id"),
    ],
)
def test_entities_that_the_client_would_refuse_are_refused_at_once(limiter, given, message):
    with pytest.raises(InvalidOption, match=message):
        limiter.add_entity(**given)


def test_a_namespace_that_the_client_would_refuse_is_refused_at_once(limiter):
    with pytest.raises(InvalidOption, match="name is 'a/b': a namespace is a letter or digit"):
        limiter.add_namespace("a/b")


def test_one_level_is_set_once(limiter):
    limiter.add_limits([RPM], resource="gpt-4")
    with pytest.raises(InvalidOption, match=r"limits is .*gpt-4.*: is added already"):
        limiter.add_limits([TPM], resource="gpt-4")


def test_the_same_level_of_two_namespaces_is_two_levels(limiter, stack, template_of):
    for name in ("AAAAAAAAAAA", "BBBBBBBBBBB"):
        limiter.add_limits([RPM], namespace=Namespace("any", id=name))
    assert template_of(stack).count(LIMITS) == 2
