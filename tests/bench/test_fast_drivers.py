"""The fast drivers are botocore's in all but cost: same endpoint, credentials and outcomes."""

from __future__ import annotations

import asyncio
import re
import select
import ssl
import threading
import uuid
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import SimpleNamespace

import boto3
import pytest
from aiobotocore.config import AioConfig
from aiobotocore.session import get_session
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.config import Config
from botocore.credentials import Credentials
from moto import mock_aws

from headgate import AccessDenied, ClockSkewed
from headgate.clock import Clock
from headgate.drivers.boto import BotoDriver
from headgate.drivers.fast import FastDriver
from headgate.drivers.fast_aio import FastAioDriver
from headgate.drivers.wire import Endpoint, Inbox, resolving
from headgate.effects import (
    Answer,
    Call,
    ConditionFailed,
    Refused,
    Throttled,
    TransactionFailed,
    Unreachable,
)
from headgate.schema import table_definition
from tests.certificates import make_certificate
from tests.limiters import boto_session
from tests.servers import THROTTLE, Do, black_hole, error, nobody, serving

OPTIONS = {
    "retries": {"total_max_attempts": 1, "mode": "standard"},
    "parameter_validation": False,
    "connect_timeout": 2,
    "read_timeout": 10,
}


def connect(url=None, session=None, **options):
    given = Config(**(OPTIONS | options))
    return (session or boto_session()).client("dynamodb", endpoint_url=url, config=given)


class Aio(FastAioDriver):
    """The asyncio driver, for tests that block. It lives for one flow."""

    def __init__(self, make, table, clock):
        client = make()
        self._url, self._config = client.meta.endpoint_url, client.meta.config
        client.close()
        super().__init__(self._make, table, clock)

    def _make(self):
        config = AioConfig(
            **OPTIONS
            | {
                "connect_timeout": self._config.connect_timeout,
                "read_timeout": self._config.read_timeout,
            }
        )
        return get_session().create_client("dynamodb", endpoint_url=self._url, config=config)

    def run(self, flow):
        async def whole():
            try:
                return await super(Aio, self).run(flow)
            finally:
                await FastAioDriver.close(self)

        return asyncio.run(whole())

    def close(self):
        """Closed with its loop."""


KINDS = [FastDriver, Aio]


def send(driver, *calls):
    def flow():
        return list((yield calls))

    return driver.run(flow())


def key(name):
    return {"PK": {"S": name}, "SK": {"S": "-"}}


def every_operation(table):
    """Calls of every kind that the client makes, in an order in which all mean something."""
    there = {"TableName": table}
    seen = {"ReturnValuesOnConditionCheckFailure": "ALL_OLD"}
    absent = {"ConditionExpression": "attribute_not_exists(PK)"} | seen
    add = {
        "UpdateExpression": "ADD n :one",
        "ExpressionAttributeValues": {":one": {"N": "1"}},
        "ReturnValues": "ALL_NEW",
    }
    item = key("ä") | {"n": {"N": "5"}, "m": {"M": {"l": {"L": [{"BOOL": True}, {"NULL": True}]}}}}
    item |= {"GSI4PK": {"S": "ns"}, "GSI4SK": {"S": "ä"}, "empty": {"S": ""}}
    put = there | {"Item": item}
    query = {
        "KeyConditionExpression": "GSI4PK = :p",
        "ExpressionAttributeValues": {":p": {"S": "ns"}},
        "IndexName": "GSI4",
    }
    update = there | {"Key": key("ä")} | add
    checked = {k: v for k, v in update.items() if k != "ReturnValues"} | seen
    checked["ConditionExpression"] = "n > :one"
    failing = checked | {"ConditionExpression": "n < :one"}
    return [
        Call("GetItem", there | {"Key": key("ä")}),
        Call("PutItem", put | absent),
        Call("PutItem", put | absent),
        Call("GetItem", there | {"Key": key("ä"), "ConsistentRead": True}),
        Call("UpdateItem", update),
        Call("UpdateItem", update | {"ConditionExpression": "n < :one"} | seen),
        Call("UpdateItem", there | {"Key": key("new")} | add),
        Call("UpdateItem", update | {"UpdateExpression": "ADD n :two"}),
        Call("BatchGetItem", {"RequestItems": {table: {"Keys": [key("ä"), key("none")]}}}),
        Call("TransactGetItems", {"TransactItems": [{"Get": there | {"Key": key("ä")}}]}),
        Call("TransactWriteItems", {"TransactItems": [{"Update": checked}]}),
        Call(
            "TransactWriteItems",
            {"TransactItems": [{"Put": there | {"Item": key("b")}}, {"Update": failing}]},
        ),
        Call("Query", there | query),
        Call("Query", there | query | {"IndexName": "nowhere"}),
        Call("BatchWriteItem", {"RequestItems": {table: [{"PutRequest": {"Item": key("c")}}]}}),
        Call("DeleteItem", there | {"Key": key("c"), "ReturnValues": "ALL_OLD"}),
        Call("GetItem", {"TableName": "there-is-none", "Key": key("ä")}),
        Call("GetItem", there | {"Key": {"PK": {"N": "1"}}}),
    ]


def comparable(outcome, table):
    if isinstance(outcome, Answer):
        body = {k: v for k, v in outcome.body.items() if k != "ResponseMetadata"}
        return "Answer", repr(sorted(body.items())).replace(table, "table")
    if isinstance(outcome, Refused):
        said = re.sub(
            r"An error occurred \((\w+)\) when calling the \w+ operation.*?: ",
            r"\1: ",
            str(outcome.error).replace(" (reached max retries: 0)", ""),
        )
        return "Refused", type(outcome.error), said.replace(table, "table")
    return outcome


@pytest.mark.parametrize("kind", KINDS)
def test_every_operation_has_the_same_outcome_as_over_the_sdk(ministack, kind):
    found = {}
    for driver_kind in (BotoDriver, kind):
        table = f"table-{uuid.uuid4().hex}"
        client = connect(ministack.endpoint_url)
        client.create_table(**table_definition(table))
        driver = driver_kind(lambda: connect(ministack.endpoint_url), table, Clock())
        calls = every_operation(table)
        found[driver_kind] = [comparable(*send(driver, call), table) for call in calls]
        driver.close()
        client.close()
    kinds = {type(outcome) for outcome in found[BotoDriver]}
    assert {tuple, ConditionFailed, TransactionFailed} <= kinds
    assert found[kind] == found[BotoDriver]


@pytest.mark.parametrize("kind", KINDS)
def test_calls_of_one_batch_are_answered_in_order(ministack, kind):
    table = f"table-{uuid.uuid4().hex}"
    client = connect(ministack.endpoint_url)
    client.create_table(**table_definition(table))
    for name in "abcdefgh":
        client.put_item(TableName=table, Item=key(name))
    client.close()
    driver = kind(lambda: connect(ministack.endpoint_url), table, Clock())
    calls = [Call("GetItem", {"TableName": table, "Key": key(name)}) for name in "abcdefgh"]
    assert [o.body["Item"]["PK"]["S"] for o in send(driver, *calls)] == list("abcdefgh")
    driver.close()


GET = Call("GetItem", {"TableName": "table", "Key": key("a")})


@pytest.mark.parametrize("kind", KINDS)
def test_error_answers_and_silence_are_told_apart(kind):
    replies = [THROTTLE, error("InternalServerError", status=500), Do.DROP, (200, {"Item": {}})]
    with serving(lambda _operation, _body: replies.pop(0)) as server:
        driver = kind(lambda: connect(server.url), "table", Clock())
        outcomes = [send(driver, GET)[0] for _ in range(4)]
        driver.close()
    assert isinstance(outcomes[0], Throttled)
    assert isinstance(outcomes[1], Unreachable)
    assert isinstance(outcomes[2], Unreachable)
    assert outcomes[3] == Answer({"Item": {}})


@pytest.mark.parametrize("kind", KINDS)
def test_nobody_there_and_nobody_answering_are_outages(kind):
    driver = kind(lambda: connect(nobody()), "table", Clock())
    assert isinstance(send(driver, GET)[0], Unreachable)
    driver.close()
    with black_hole() as url:
        driver = kind(lambda: connect(url, read_timeout=0.05), "table", Clock())
        (outcome,) = send(driver, GET)
        driver.close()
    assert isinstance(outcome, Unreachable)
    assert "imeout" in outcome.reason


@pytest.mark.parametrize("kind", KINDS)
def test_a_connection_that_has_answered_is_waited_for_no_longer_than_a_new_one(kind):
    asked_for, over = [], threading.Event()

    def answer(_operation, _body):
        asked_for.append(1)
        if len(asked_for) > 3:
            over.wait(30)
        return 200, {"Item": {}}

    with serving(answer) as server:
        driver = kind(lambda: connect(server.url, read_timeout=1), "table", Clock())
        outcomes = [send(driver, GET)[0] for _ in range(4)]
        over.set()
        driver.close()
    assert outcomes[:3] == [Answer({"Item": {}})] * 3
    assert isinstance(outcomes[3], Unreachable)


class Handler(BaseHTTPRequestHandler):
    """Answers with what it was sent; how, the server says."""

    protocol_version = "HTTP/1.1"

    def do_POST(self):
        self.server.requests.append((self.headers, self.client_address))
        self.rfile.read(int(self.headers["Content-Length"]))
        status, headers, body, ends = self.server.reply(self.headers)
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)
        self.close_connection = ends

    def log_message(self, *_):
        """Quiet."""


PLAIN = (200, {"Content-Length": "2"}, b"{}", False)


@pytest.fixture
def server():
    listener = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    listener.daemon_threads = True
    listener.requests, listener.reply = [], lambda _headers: PLAIN
    listener.url = f"http://127.0.0.1:{listener.server_port}"
    thread = threading.Thread(target=listener.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    yield listener
    listener.shutdown()
    thread.join()
    listener.server_close()


def connections(server):
    return len({address for _, address in server.requests})


def test_a_connection_is_used_again_until_the_server_closes_it(server):
    driver = FastDriver(lambda: connect(server.url), "table", Clock())
    for _ in range(3):
        assert send(driver, GET) == [Answer({})]
    assert connections(server) == 1
    # Announced, and not announced: either way the next request takes a new one.
    for headers in ({"Connection": "close"}, {}):
        server.reply = lambda _, h=headers: (200, h | {"Content-Length": "2"}, b"{}", True)
        assert send(driver, GET) == [Answer({})]
        server.reply = lambda _: PLAIN
        if not headers:
            # The farewell has arrived once the socket can be read.
            sock = driver._idle[-1]._sock
            assert select.select([sock], [], [], 10)[0]
        assert send(driver, GET) == [Answer({})]
    assert connections(server) == 3
    driver.close()


@pytest.mark.parametrize("kind", KINDS)
def test_bodies_in_chunks_and_bodies_to_the_end_of_the_connection(server, kind):
    driver = kind(lambda: connect(server.url), "table", Clock())
    chunks = b'6\r\n{"Item\r\n5;x=y\r\n": {}\r\n1\r\n}\r\n0\r\n\r\n'
    server.reply = lambda _: (200, {"Transfer-Encoding": "chunked"}, chunks, False)
    assert send(driver, GET) == [Answer({"Item": {}})]
    server.reply = lambda _: (200, {"Connection": "close"}, b'{"Item": {}}', True)
    assert send(driver, GET) == [Answer({"Item": {}})]
    server.reply = lambda _: (503, {"Content-Length": "6"}, b"<html>", False)
    (outcome,) = send(driver, GET)
    assert isinstance(outcome, Unreachable)
    server.reply = lambda _: (200, {"Content-Length": "6"}, b"<html>", False)
    (outcome,) = send(driver, GET)
    assert isinstance(outcome, Unreachable)
    driver.close()


@pytest.mark.parametrize("cut", range(1, 60, 7))
def test_an_answer_may_come_in_pieces(cut):
    whole = b'HTTP/1.1 200 OK\r\nDate: x\r\nContent-Length: 12\r\n\r\n{"Item": {}}'
    inbox = Inbox()
    assert inbox.feed(whole[:cut]) is None
    assert inbox.feed(whole[cut:]).body == b'{"Item": {}}'
    assert inbox.feed(whole).keep


def test_an_answer_that_breaks_off_is_none():
    for part in (b"", b"HTTP/1.1 200 OK\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{"):
        inbox = Inbox()
        if part:
            assert inbox.feed(part) is None
        with pytest.raises(ConnectionResetError):
            inbox.feed(b"")


@pytest.mark.parametrize("kind", KINDS)
def test_a_clock_that_is_off_is_put_right_by_the_refusal(server, kind):
    def reply(headers):
        if headers["X-Amz-Date"].startswith("2020"):
            body = b'{"__type": "com.amazon.coral.service#InvalidSignatureException"}'
            return 400, {"Content-Length": str(len(body))}, body, False
        return PLAIN

    server.reply = reply
    driver = kind(lambda: connect(server.url), "table", Clock(lambda: 1_577_880_000_000))
    assert send(driver, GET) == [Answer({})]
    assert len(server.requests) == 2
    # With a clock that is right, a refused signature is what it says.
    body = b'{"__type": "x#InvalidSignatureException"}'
    server.reply = lambda _: (400, {"Content-Length": str(len(body))}, body, False)
    (outcome,) = send(driver, GET)
    assert isinstance(outcome.error, ClockSkewed)
    driver.close()


@pytest.mark.parametrize("token", [None, "a/token+with=signs"])
def test_the_signature_is_that_of_the_sdk(token):
    credentials = Credentials("AKID", "secret", token)
    endpoint = Endpoint(
        "dynamodb.eu-west-1.amazonaws.com", 443, None, "dynamodb.eu-west-1.amazonaws.com",
        "eu-west-1", "dynamodb", "agent", credentials, 1, 1,
    )  # fmt: skip
    now = 1_800_000_000_000
    head, _, body = endpoint.request(GET, credentials, now).partition(b"\r\n\r\n")
    lines = [line.partition(":") for line in head.decode().split("\r\n")[1:]]
    sent = {name: value for name, _, value in lines}
    signed = ("content-type", "x-amz-target")
    request = AWSRequest(
        "POST",
        f"https://{endpoint.authority}/",
        data=body,
        headers={name: sent[name] for name in signed},
    )
    signer = SigV4Auth(credentials, "dynamodb", "eu-west-1")
    request.context["timestamp"] = sent["x-amz-date"]
    request.headers["X-Amz-Date"] = sent["x-amz-date"]
    if token:
        request.headers["X-Amz-Security-Token"] = token
    text = signer.string_to_sign(request, signer.canonical_request(request))
    assert sent["authorization"].endswith(f"Signature={signer.signature(text, request)}")
    assert sent["x-amz-date"] == "20270115T080000Z"
    assert sent.get("x-amz-security-token") == token


def resolved(client):
    try:
        next(resolving(client, "table"))
    except StopIteration as stop:
        return stop.value
    raise AssertionError("it sent something")


@pytest.mark.parametrize(
    ("options", "host"),
    [
        ({}, "dynamodb.eu-west-1.amazonaws.com"),
        ({"use_fips_endpoint": True}, "dynamodb-fips.eu-west-1.amazonaws.com"),
        ({"use_dualstack_endpoint": True}, "dynamodb.eu-west-1.api.aws"),
    ],
)
def test_the_endpoint_is_the_one_that_the_sdk_would_have_taken(options, host):
    session = boto3.Session(region_name="us-west-2" if "fips" in str(options) else "eu-west-1")
    client = connect(session=session, **options)
    endpoint = resolved(client)
    assert endpoint.host == host.replace("eu-west-1", session.region_name)
    assert (endpoint.port, endpoint.authority) == (443, endpoint.host)
    assert endpoint.region == session.region_name
    assert endpoint.tls.verify_mode is ssl.CERT_REQUIRED
    assert endpoint.tls.check_hostname
    client.close()


@pytest.mark.parametrize("variable", ["AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_DYNAMODB"])
def test_the_endpoint_variables_are_heard(monkeypatch, variable):
    monkeypatch.setenv(variable, "http://127.0.0.1:4567")
    client = connect(session=boto3.Session())
    endpoint = resolved(client)
    assert (endpoint.host, endpoint.port) == ("127.0.0.1", 4567)
    assert endpoint.authority == "127.0.0.1:4567"
    client.close()


@pytest.mark.parametrize("kind", KINDS)
def test_through_a_proxy_the_sdk_sends(monkeypatch, server, kind):
    monkeypatch.setenv("HTTP_PROXY", server.url)
    monkeypatch.setenv("NO_PROXY", "")
    driver = kind(lambda: connect("http://table.invalid"), "table", Clock())
    (outcome,) = send(driver, GET)
    assert isinstance(outcome, Answer)
    assert server.requests[0][0]["Host"] == "table.invalid"
    driver.close()


def test_what_listens_before_sending_is_heard():
    with mock_aws():
        session = boto3.Session()
        session.client("dynamodb").create_table(**table_definition("table"))
        driver = FastDriver(lambda: connect(session=session), "table", Clock())
        (outcome,) = send(driver, GET)
        assert isinstance(outcome, Answer)
        driver.close()


def test_credentials_are_asked_for_at_each_request(server):
    driver = FastDriver(lambda: connect(server.url), "table", Clock())
    send(driver, GET)
    names = iter(["first", "second"])
    driver._endpoint.credentials = SimpleNamespace(
        get_frozen_credentials=lambda: Credentials(next(names), "secret", "token")
    )
    send(driver, GET)
    send(driver, GET)
    sent = [headers["Authorization"].partition("Credential=")[2] for headers, _ in server.requests]
    assert [text.partition("/")[0] for text in sent] == ["testing", "first", "second"]
    assert server.requests[2][0]["X-Amz-Security-Token"] == "token"
    driver.close()


def test_without_credentials_it_says_so(monkeypatch):
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    driver = FastDriver(lambda: connect(session=boto3.Session()), "table", Clock())
    (outcome,) = send(driver, GET)
    assert isinstance(outcome.error, AccessDenied)
    driver.close()


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    return make_certificate(tmp_path_factory.mktemp("tls"))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("trusted", [True, False])
def test_certificates_are_checked_against_the_configured_bundle(
    monkeypatch, server, certificate, kind, trusted
):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    server.handle_error = lambda *_: None
    if trusted:
        monkeypatch.setenv("AWS_CA_BUNDLE", str(certificate))
    url = f"https://127.0.0.1:{server.server_port}"
    driver = kind(lambda: connect(url, session=boto3.Session()), "table", Clock())
    (outcome,) = send(driver, GET)
    driver.close()
    assert isinstance(outcome, Answer if trusted else Unreachable)
