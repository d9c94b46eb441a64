"""The real CDK command line deploys, updates and destroys; functions acquire through the layer."""

import json

import pytest

import deploy
from headgate import Limit, SyncRateLimiter

APP = deploy.ROOT / "app.py"
IMPORTS = deploy.ROOT / "examples/import_construct.py"
ATTACHES = deploy.ROOT / "examples/attach_function.py"


def invoke(aws, function, user="user-1"):
    answer = aws("lambda").invoke(
        FunctionName=function, Payload=json.dumps({"user": user, "prompt": "one two"})
    )
    body = json.loads(answer["Payload"].read())
    assert "FunctionError" not in answer, body
    return body


def until_limited(aws, function, user, most=50):
    """How many calls pass before one does not, and what that one says."""
    for passed in range(most):
        answer = invoke(aws, function, user)
        if answer["statusCode"] != 200:
            return passed, answer
    pytest.fail(f"{most} calls passed")
    return None


def everything(aws):
    """What there is in the account that a stack could have made."""
    return {
        "stack": {
            s["StackName"]
            for s in aws("cloudformation").describe_stacks()["Stacks"]
            if s["StackStatus"] != "DELETE_COMPLETE"
        },
        "table": set(aws("dynamodb").list_tables()["TableNames"]),
        "bucket": {b["Name"] for b in aws("s3").list_buckets()["Buckets"]},
        "function": {f["FunctionName"] for f in aws("lambda").list_functions()["Functions"]},
        "layer": {y["LayerName"] for y in aws("lambda").list_layers()["Layers"]},
        "mapping": {
            m["UUID"] for m in aws("lambda").list_event_source_mappings()["EventSourceMappings"]
        },
        "queue": set(aws("sqs").list_queues().get("QueueUrls", [])),
        "role": {r["RoleName"] for r in aws("iam").list_roles()["Roles"]},
        "alarm": {a["AlarmName"] for a in aws("cloudwatch").describe_alarms()["MetricAlarms"]},
        "rule": {r["Name"] for r in aws("events").list_rules()["Rules"]},
        "dashboard": {
            d["DashboardName"] for d in aws("cloudwatch").list_dashboards()["DashboardEntries"]
        },
        # Lambda makes a log group for a function that writes and was given none.
        "logs": {
            g["logGroupName"]
            for g in aws("logs").describe_log_groups()["logGroups"]
            if not g["logGroupName"].startswith("/aws/lambda/")
        },
    }


def table_of(aws, name):
    return aws("dynamodb").describe_table(TableName=name)["Table"]


def test_a_stack_with_the_construct_limits_updates_and_leaves_its_data(account, aws):
    before = everything(aws)
    outputs = deploy.deploy(account, IMPORTS, {"rpd": "5"})["Chat"]
    function, table = outputs["Function"], outputs["Table"]

    passed, refused = until_limited(aws, function, "user-1")
    assert passed == 5
    assert refused["statusCode"] == 429
    assert int(refused["headers"]["Retry-After"]) > 0
    assert json.loads(refused["body"])["resource"] == "gpt-4"

    # Other limits and more memory: the table stays the one it is, and so does what is in it.
    made = table_of(aws, table)
    assert deploy.deploy(account, IMPORTS, {"rpd": "9", "memory": "512"})["Chat"] == outputs
    assert table_of(aws, table)["CreationDateTime"] == made["CreationDateTime"]
    assert table_of(aws, table)["LatestStreamArn"] == made["LatestStreamArn"]
    sizes = {f["MemorySize"] for f in aws("lambda").list_functions()["Functions"]}
    assert 512 in sizes
    with SyncRateLimiter(table, endpoint_url=account) as limiter:
        # A process that has read the old limits learns of the new within the minute.
        assert limiter.check("user-2", "gpt-4", {"rpd": 9}).allowed
        assert not limiter.check("user-2", "gpt-4", {"rpd": 10}).allowed

        deploy.destroy(account, IMPORTS)
        assert limiter.get_limits(resource="gpt-4") is None
    left = everything(aws)
    assert left.pop("table") - before.pop("table") == {table}
    assert left.pop("bucket") - before.pop("bucket") == {outputs["Archive"]}
    assert left == before


@pytest.fixture(scope="module")
def deployed(account):
    """What `cdk deploy` says it made."""
    return deploy.deploy(account, APP, {"name": "shared", "memory": "384"})["shared"]


def test_app_py_deploys_what_its_context_says(deployed, aws):
    assert deployed["TableName"] == "shared"
    table = table_of(aws, "shared")
    indexes = {index["IndexName"] for index in table["GlobalSecondaryIndexes"]}
    assert indexes == {"GSI1", "GSI2", "GSI3", "GSI4"}
    assert table["StreamSpecification"]["StreamViewType"] == "NEW_AND_OLD_IMAGES"
    aggregator = aws("lambda").get_function(FunctionName=deployed["Aggregator"])["Configuration"]
    assert aggregator["MemorySize"] == 384
    mappings = aws("lambda").list_event_source_mappings(EventSourceArn=deployed["StreamArn"])
    assert len(mappings["EventSourceMappings"]) == 2
    assert aws("sqs").get_queue_attributes(QueueUrl=deployed["DeadLettersUrl"])
    body = aws("cloudwatch").get_dashboard(DashboardName=deployed["Dashboard"])["DashboardBody"]
    assert len(json.loads(body)["widgets"]) == 15


def test_a_deployment_that_fails_takes_back_the_limits_that_it_set(account, deployed):
    """Two levels are set by one deployment, and the second is taken by somebody else."""
    app = deploy.ROOT / "tests/e2e/two_levels.py"
    with SyncRateLimiter("shared", endpoint_url=account) as limiter:
        limiter.set_limits([Limit.per_minute("rpm", 99)], resource="theirs")
        with pytest.raises(deploy.DeployError, match="stored already, with other values"):
            deploy.deploy(account, app, {"table": "shared"})
        assert limiter.get_limits(resource="ours") is None
        assert limiter.get_limits(resource="theirs").limits == (Limit.per_minute("rpm", 99),)


def test_a_function_of_another_stack_is_limited_in_its_own_namespace(account, aws, deployed):
    outputs = deploy.deploy(account, ATTACHES, {"table": "shared"})["Team"]
    with SyncRateLimiter("shared", endpoint_url=account) as limiter:
        assert limiter.get_namespace("team-a").id == outputs["NamespaceId"]

    assert until_limited(aws, outputs["Function"], "user-1")[0] == 3
    function = aws("lambda").get_function_configuration(FunctionName=outputs["Function"])
    settings = function["Environment"]["Variables"]
    assert settings["HEADGATE_NAMESPACE_ID"] == outputs["NamespaceId"]

    with SyncRateLimiter("shared", endpoint_url=account, namespace="team-a") as team:
        assert team.available("user-1", "gpt-4")["rpd"] == 0
    deploy.destroy(account, ATTACHES, {"table": "shared"})
    with SyncRateLimiter("shared", endpoint_url=account) as limiter:
        assert limiter.get_namespace("team-a") is None
