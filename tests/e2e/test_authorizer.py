"""Deployed by the CDK: requests through the emulator's gateways, the authorizer before them.

The emulator fills neither headers nor bodies of gateway responses from the authorizer's context:
the status comes through it, and what would fill them is asked of the deployed function, with the
event that API Gateway sends.
"""

from __future__ import annotations

import http.client
import json
import time
from types import SimpleNamespace
from urllib.parse import urlsplit

import pytest

import deploy
from headgate import SyncRateLimiter
from tests.authorizer import events, issuer
from tests.authorizer.tls import serve_tls
from tests.certificates import make_certificate
from tests.servers import Do, serving

APP = deploy.ROOT / "examples/authorizer_stack.py"


@pytest.fixture(scope="module")
def keys(tmp_path_factory):
    """An issuer of tokens on loopback, over TLS."""
    certificate = make_certificate(tmp_path_factory.mktemp("tls"))
    private = issuer.make_key()
    with serve_tls(certificate) as server:
        document = issuer.Endpoint(issuer.jwk(private)).fetch("")
        server.answers["/.well-known/jwks.json"] = (200, {}, document)
        yield SimpleNamespace(private=private, url=server.url, certificate=certificate)


@pytest.fixture(scope="module")
def wire(account):
    """What stands between the functions and their table."""
    with serving(lambda *_: Do.FORWARD, before=account) as server:
        yield server


@pytest.fixture(scope="module")
def limited(account, aws, keys, wire):
    context = {"rpd": "3", "issuer": keys.url}
    outputs = deploy.deploy(account, APP, context)["Limited"]
    set_environment(aws, outputs["ByUserFunction"], SSL_CERT_FILE=str(keys.certificate))
    set_environment(aws, outputs["ByKeyFunction"], AWS_ENDPOINT_URL_DYNAMODB=wire.url)
    yield outputs
    deploy.destroy(account, APP, context)


def set_environment(aws, function, **more):
    known = aws("lambda").get_function_configuration(FunctionName=function)["Environment"]
    aws("lambda").update_function_configuration(
        FunctionName=function, Environment={"Variables": known["Variables"] | more}
    )


@pytest.fixture
def get(account, limited):
    """A request through one of the gateways: status, headers and body."""
    apis = {
        "rest": f"/_aws/execute-api/{limited['RestId']}/{limited['Stage']}",
        "http": f"/_aws/execute-api/{limited['HttpId']}/$default",
    }

    def send(api, path, **headers):
        connection = http.client.HTTPConnection(urlsplit(account).netloc)
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        connection.request("GET", apis[api] + path, headers=named)
        response = connection.getresponse()
        body = json.loads(response.read())
        connection.close()
        return response.status, dict(response.getheaders()), body

    return send


def ask(aws, function, event):
    answer = aws("lambda").invoke(FunctionName=function, Payload=json.dumps(event))
    return json.loads(answer["Payload"].read())


@pytest.mark.parametrize(("api", "refusal"), [("rest", 429), ("http", 403)])
def test_requests_reach_the_backend_until_the_limit(get, api, refusal):
    given = [get(api, "/items", x_api_key=f"of-{api}") for _ in range(4)]
    assert [status for status, _, _ in given] == [200, 200, 200, refusal]
    left = [headers["X-RateLimit-Remaining"] for status, headers, _ in given if status == 200]
    assert left == ["2", "1", "0"]
    assert get(api, "/items", x_api_key=f"another-{api}")[0] == 200


def test_a_refusal_has_what_the_gateway_response_is_filled_from(aws, limited):
    event = events.rest({"X-Api-Key": "asked-directly"})
    given = [ask(aws, limited["ByKeyFunction"], event) for _ in range(4)]
    assert [events.allowed(answer) for answer in given] == [True, True, True, False]
    told = given[3]["context"]
    assert int(told["retryAfter"]) > 0
    assert told["scope"] == "api"
    responses = aws("apigateway").get_gateway_responses(restApiId=limited["RestId"])["items"]
    (denied,) = [r for r in responses if r["responseType"] == "ACCESS_DENIED"]
    sources = [value.rpartition(".")[2] for value in denied["responseParameters"].values()]
    assert set(sources) <= set(told)


def test_nobodys_key_is_in_the_table(aws, limited, get):
    get("rest", "/items", x_api_key="very-secret-key")
    items = aws("dynamodb").scan(TableName=limited["Table"])["Items"]
    assert "key:" in json.dumps(items)
    assert "very-secret-key" not in json.dumps(items)


def test_requests_without_a_key_share_one_bucket(account, limited, get):
    statuses = [get(api, "/items")[0] for api in ("rest", "http", "rest", "rest", "http")]
    assert statuses == [200, 200, 200, 429, 403]
    with SyncRateLimiter(limited["Table"], endpoint_url=account) as limiter:
        assert limiter.available("anonymous", "api") == {"rpd": 0}


def bearer(key, **changes):
    now = int(time.time())
    claims = {"iss": None, "aud": "example", "sub": "user-1", "exp": now + 300, **changes}
    return f"Bearer {issuer.token(key, claims)}"


@pytest.mark.parametrize(("api", "refusal"), [("rest", 401), ("http", 403)])
def test_a_token_is_verified_by_the_issuers_keys(get, keys, api, refusal):
    sub = f"user-of-{api}"
    good = bearer(keys.private, iss=keys.url, sub=sub)
    status, headers, body = get(api, "/mine", authorization=good)
    assert (status, body) == (200, {"caller": sub})
    assert headers["X-RateLimit-Remaining"] == "2"
    for wrong in (
        bearer(issuer.make_key(), iss=keys.url, sub=sub),
        bearer(keys.private, iss="https://other.example", sub=sub),
        bearer(keys.private, iss=keys.url, sub=sub, exp=1),
        f"{good[:-8]}AAAAAAAA",
    ):
        assert get(api, "/mine", authorization=wrong)[0] == refusal
    assert get(api, "/mine")[0] == refusal
    assert get(api, "/mine", authorization=good)[1]["X-RateLimit-Remaining"] == "1"


@pytest.mark.parametrize(("api", "undecided"), [("rest", 503), ("http", 500)])
def test_an_outage_blocks_or_passes_as_was_chosen_and_ends(aws, limited, get, wire, api, undecided):
    function = limited["ByKeyFunction"]
    me = {"x_api_key": f"outage-{api}"}
    assert get(api, "/items", **me)[0] == 200
    wire.answer = lambda *_: Do.DROP
    try:
        status, headers, body = get(api, "/items", **me)
        assert status == undecided
        if api == "rest":
            assert headers["Retry-After"] == "1"
            assert body == {"error": "rate_limiter_unavailable"}
        set_environment(aws, function, HEADGATE_ON_UNAVAILABLE="allow")
        status, headers, _ = get(api, "/items", **me)
        assert (status, headers["X-RateLimit-Degraded"]) == (200, "true")
    finally:
        wire.answer = lambda *_: Do.FORWARD
        set_environment(aws, function, HEADGATE_ON_UNAVAILABLE="block")
    status, headers, _ = get(api, "/items", **me)
    assert (status, headers["X-RateLimit-Remaining"]) == (200, "1")


def test_logs_have_metrics_and_neither_keys_nor_tokens_nor_ids(aws, get, keys):
    good = bearer(keys.private, iss=keys.url, sub="user-in-logs")
    get("rest", "/items", x_api_key="key-in-logs")
    get("rest", "/mine", authorization=good)
    get("rest", "/mine", authorization=f"{good}x")
    groups = aws("logs").describe_log_groups()["logGroups"]
    names = [g["logGroupName"] for g in groups if "AuthorizerLogs" in g["logGroupName"]]
    said = "\n".join(
        event["message"]
        for name in names
        for event in aws("logs").filter_log_events(logGroupName=name)["events"]
    )
    assert '"service": "authorizer", "resource": "api", "outcome": "admitted"' in said
    for private in ("in-logs", "key:", "user-", good.split(".")[1], good.split(".")[2]):
        assert private not in said
