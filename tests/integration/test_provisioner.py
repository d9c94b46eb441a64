"""The function behind the custom resources, called as CloudFormation calls it."""

import json
import secrets
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import boto3
import pytest

from headgate import Limit, SyncRateLimiter, schema
from headgate.provision import Address, Change, apply
from headgate.records import Entity
from provisioner.handler import handler

TABLE = "provisioned"


@pytest.fixture(scope="module")
def table(ministack):
    client = boto3.client("dynamodb", endpoint_url=ministack.endpoint_url)
    client.create_table(**schema.table_definition(TABLE))


@pytest.fixture
def namespace():
    """Each test has one of its own."""
    return secrets.token_urlsafe(8)


@pytest.fixture
def limiter(ministack, table, namespace):
    with SyncRateLimiter(
        TABLE, namespace_id=namespace, endpoint_url=ministack.endpoint_url
    ) as limiter:
        yield limiter


@pytest.fixture
def responses():
    """Where CloudFormation waits for the answer."""
    answers = []

    class Receiver(BaseHTTPRequestHandler):
        def do_PUT(self):
            answers.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_):
            pass

    with HTTPServer(("127.0.0.1", 0), Receiver) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/answer", answers
        server.shutdown()
        thread.join()


@pytest.fixture
def cloudformation(ministack, limiter, namespace, responses, monkeypatch):
    """Sends one request and returns the answer."""
    url, answers = responses
    monkeypatch.setenv("HEADGATE_TABLE", TABLE)
    monkeypatch.setenv("AWS_ENDPOINT_URL", ministack.endpoint_url)

    def send(request, kind, properties, physical_id=None, *, logical_id="Logical"):
        event = {
            "RequestType": request,
            "ResponseURL": url,
            "StackId": "stack",
            "RequestId": "request",
            "LogicalResourceId": logical_id,
            "ResourceType": f"Custom::Headgate{kind}",
            "ResourceProperties": {"ServiceToken": "arn", **properties},
        }
        if kind != "Namespace":
            event["ResourceProperties"]["Namespace"] = namespace
        if physical_id:
            event["PhysicalResourceId"] = physical_id
        handler(event, None)
        answer = answers.pop()
        assert (answer["StackId"], answer["RequestId"]) == ("stack", "request")
        return answer

    return send


def gpt4(amount):
    """As CloudFormation sends it: every number is text."""
    limit = {"Name": "rpm", "RefillAmount": str(amount), "RefillPeriod": "60"}
    return {"Resource": "gpt-4", "Limits": [{**limit, "Capacity": str(amount)}]}


def stored(limiter):
    found = limiter.get_limits(resource="gpt-4")
    return found and found.limits


def rpm(amount):
    return (Limit.per_minute("rpm", amount),)


def test_limits_are_made_changed_and_removed(cloudformation, limiter):
    made = cloudformation("Create", "Limits", gpt4(10))
    assert made["Status"] == "SUCCESS"
    assert stored(limiter) == rpm(10)

    changed = cloudformation("Update", "Limits", gpt4(20), made["PhysicalResourceId"])
    assert changed["Status"] == "SUCCESS"
    assert changed["PhysicalResourceId"] == made["PhysicalResourceId"]
    assert stored(limiter) == rpm(20)

    gone = cloudformation("Delete", "Limits", gpt4(20), made["PhysicalResourceId"])
    assert gone["Status"] == "SUCCESS"
    assert stored(limiter) is None


def test_a_request_that_is_sent_twice_writes_once(cloudformation, limiter):
    made = cloudformation("Create", "Limits", gpt4(10))["PhysicalResourceId"]
    version = limiter.get_limits(resource="gpt-4").version
    assert cloudformation("Update", "Limits", gpt4(10), made)["Status"] == "SUCCESS"
    assert limiter.get_limits(resource="gpt-4").version == version
    for _ in range(2):
        assert cloudformation("Delete", "Limits", gpt4(10), made)["Status"] == "SUCCESS"


def test_a_failed_update_is_rolled_back_to_what_was(cloudformation, limiter):
    made = cloudformation("Create", "Limits", gpt4(10))["PhysicalResourceId"]
    cloudformation("Update", "Limits", gpt4(20), made)
    # Something else in the stack failed: CloudFormation sends the old properties again.
    cloudformation("Update", "Limits", gpt4(10), made)
    assert stored(limiter) == rpm(10)


def test_limits_of_others_are_refused_and_left_alone(cloudformation, limiter):
    limiter.set_limits(rpm(99), resource="gpt-4")
    refused = cloudformation("Create", "Limits", gpt4(10))
    assert refused["Status"] == "FAILED"
    assert "the limits of resource 'gpt-4': stored already" in refused["Reason"]
    # CloudFormation cleans up what it could not create.
    assert cloudformation("Delete", "Limits", gpt4(10), refused["PhysicalResourceId"])[
        "Status"
    ] == ("SUCCESS")
    assert stored(limiter) == rpm(99)


def test_equal_limits_of_others_are_used_and_outlive_the_stack(cloudformation, limiter):
    limiter.set_limits(rpm(10), resource="gpt-4")
    found = cloudformation("Create", "Limits", gpt4(10))
    assert found["Status"] == "SUCCESS"
    cloudformation("Delete", "Limits", gpt4(10), found["PhysicalResourceId"])
    assert stored(limiter) == rpm(10)


def test_limits_that_move_to_another_level_are_made_there_and_then_removed_here(
    cloudformation, limiter
):
    old = cloudformation("Create", "Limits", gpt4(10))["PhysicalResourceId"]
    elsewhere = {**gpt4(10), "Resource": "gpt-5"}
    new = cloudformation("Update", "Limits", elsewhere, old)["PhysicalResourceId"]
    assert new != old
    cloudformation("Delete", "Limits", gpt4(10), old)
    assert stored(limiter) is None
    assert limiter.get_limits(resource="gpt-5").limits == rpm(10)


def test_a_move_that_is_refused_leaves_what_was_there(cloudformation, limiter):
    old = cloudformation("Create", "Limits", gpt4(10))["PhysicalResourceId"]
    limiter.set_limits(rpm(99), resource="gpt-5")
    elsewhere = {**gpt4(10), "Resource": "gpt-5"}
    refused = cloudformation("Update", "Limits", elsewhere, old)
    assert refused["Status"] == "FAILED"
    assert refused["PhysicalResourceId"] == old
    # The rollback: back to the old properties, and no second id that would have the first deleted.
    back = cloudformation("Update", "Limits", gpt4(10), old)
    assert (back["Status"], back["PhysicalResourceId"]) == ("SUCCESS", old)
    assert stored(limiter) == rpm(10)
    assert limiter.get_limits(resource="gpt-5").limits == rpm(99)


def test_a_construct_that_moves_in_its_app_keeps_its_limits(cloudformation, limiter):
    """Another logical id: CloudFormation creates the new resource before it deletes the old."""
    made = cloudformation("Create", "Limits", gpt4(10), logical_id="Old")
    moved = cloudformation("Create", "Limits", gpt4(10), logical_id="New")
    assert moved["Status"] == "SUCCESS"
    cloudformation("Delete", "Limits", gpt4(10), made["PhysicalResourceId"], logical_id="Old")
    assert stored(limiter) == rpm(10)
    # It was made by this stack all the same, and goes with the last that has it.
    cloudformation("Delete", "Limits", gpt4(10), moved["PhysicalResourceId"], logical_id="New")
    assert stored(limiter) is None


def test_two_owners_that_disagree_are_told(cloudformation, limiter):
    cloudformation("Create", "Limits", gpt4(10), logical_id="One")
    refused = cloudformation("Create", "Limits", gpt4(20), logical_id="Other")
    assert refused["Status"] == "FAILED"
    cloudformation("Delete", "Limits", gpt4(20), refused["PhysicalResourceId"], logical_id="Other")
    assert stored(limiter) == rpm(10)


def test_the_systems_limits_carry_the_policy_for_outages(cloudformation, limiter):
    properties = {**gpt4(10), "OnUnavailable": "allow"}
    del properties["Resource"]
    made = cloudformation("Create", "Limits", properties)["PhysicalResourceId"]
    assert limiter.get_limits().on_unavailable == "allow"
    cloudformation("Delete", "Limits", properties, made)
    assert limiter.get_limits() is None


def test_entities_are_made_changed_and_removed(cloudformation, limiter):
    parent = cloudformation("Create", "Entity", {"EntityId": "org-1", "Cascade": "false"})
    user = {"EntityId": "user-1", "ParentId": "org-1", "Cascade": "true", "Metadata": {"a": "b"}}
    child = cloudformation("Create", "Entity", user)
    assert limiter.get_entity("user-1") == Entity("user-1", "org-1", True, None, {"a": "b"})

    changed = {"EntityId": "user-1", "ParentId": "org-1", "Cascade": "false", "Name": "User"}
    cloudformation("Update", "Entity", changed, child["PhysicalResourceId"])
    assert limiter.get_entity("user-1") == Entity("user-1", "org-1", False, "User", {}, 2)

    cloudformation("Delete", "Entity", changed, child["PhysicalResourceId"])
    cloudformation("Delete", "Entity", {"EntityId": "org-1"}, parent["PhysicalResourceId"])
    assert limiter.get_entity("user-1") is limiter.get_entity("org-1") is None


def test_what_the_client_refuses_fails_the_deployment_with_its_words(cloudformation):
    orphan = {"EntityId": "user-1", "ParentId": "nobody", "Cascade": "true"}
    refused = cloudformation("Create", "Entity", orphan)
    assert refused["Status"] == "FAILED"
    assert "nobody" in refused["Reason"]


def test_a_change_that_fails_takes_back_those_before_it(limiter):
    first = Entity("first")
    orphan = Entity("orphan", "nobody", cascade=True)
    changes = [
        Change(Address("entity", "first"), None, first),
        Change(Address("entity", "orphan"), None, orphan),
    ]
    with pytest.raises(ValueError, match="nobody"):
        apply(limiter, changes)
    assert limiter.get_entity("first") is None


def test_a_namespace_is_registered_found_and_deleted_with_its_last_owner(cloudformation, limiter):
    team = {"Name": f"team-{secrets.token_hex(4)}"}
    made = cloudformation("Create", "Namespace", team, logical_id="One")
    assert made["Data"] == {"NamespaceId": limiter.get_namespace(team["Name"]).id}
    again = cloudformation("Create", "Namespace", team, logical_id="Other")
    assert again["Data"] == made["Data"]
    assert again["PhysicalResourceId"] == made["PhysicalResourceId"]

    cloudformation("Delete", "Namespace", team, made["PhysicalResourceId"], logical_id="One")
    assert limiter.get_namespace(team["Name"])
    cloudformation("Delete", "Namespace", team, made["PhysicalResourceId"], logical_id="Other")
    assert limiter.get_namespace(team["Name"]) is None
    assert limiter.recover_namespace(made["Data"]["NamespaceId"])


def test_a_namespace_that_was_there_before_outlives_the_stack(cloudformation, limiter):
    name = f"team-{secrets.token_hex(4)}"
    known = limiter.register_namespace(name)
    found = cloudformation("Create", "Namespace", {"Name": name})
    assert found["Data"] == {"NamespaceId": known.id}
    cloudformation("Delete", "Namespace", {"Name": name}, found["PhysicalResourceId"])
    assert limiter.get_namespace(name) == known


def test_nothing_is_left_of_what_was_made_and_removed(ministack, cloudformation, namespace):
    made = cloudformation("Create", "Limits", gpt4(10))
    cloudformation("Delete", "Limits", gpt4(10), made["PhysicalResourceId"])
    client = boto3.client("dynamodb", endpoint_url=ministack.endpoint_url)
    left = client.query(
        TableName=TABLE,
        IndexName="GSI4",
        KeyConditionExpression="GSI4PK = :n",
        ExpressionAttributeValues={":n": {"S": namespace}},
    )
    assert [item["SK"]["S"] for item in left["Items"] if "AUDIT" not in item["PK"]["S"]] == []
