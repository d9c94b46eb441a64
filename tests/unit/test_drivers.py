"""Drivers run flows: they send, wait and pass on, and decide nothing."""

from __future__ import annotations

import asyncio
import threading

import pytest
from botocore.exceptions import (
    ClientError,
    ConnectTimeoutError,
    EndpointConnectionError,
    NoCredentialsError,
    ReadTimeoutError,
)

from headgate import AccessDenied, ClockSkewed, TableError, TableNotFound
from headgate.clock import Clock
from headgate.drivers.aio import AioDriver
from headgate.drivers.boto import BotoDriver, method_name
from headgate.drivers.outcomes import from_error, from_exception
from headgate.effects import (
    Answer,
    Call,
    ConditionFailed,
    Conflicted,
    Pause,
    Refused,
    Throttled,
    TransactionFailed,
    Unreachable,
    together,
)


class Client:
    """A table that answers with what it was asked, or raises what it is told to."""

    def __init__(self):
        self.raises = {}
        self.threads = set()
        self.closed = False

    def get_item(self, **params):
        self.threads.add(threading.get_ident())
        error = self.raises.get(params["Key"])
        if error:
            raise error
        return {"Item": params["Key"]}

    def close(self):
        self.closed = True


class AioClient(Client):
    def __init__(self):
        super().__init__()
        self.arrived, self.answer = asyncio.Event(), asyncio.Event()
        self.answer.set()

    async def get_item(self, **params):
        self.arrived.set()
        await self.answer.wait()
        return super().get_item(**params)

    async def update_item(self, **_params):
        """An open client of aiobotocore has its operations; one to be opened has not."""


def get(key):
    return Call("GetItem", {"Key": key})


def keys(outcomes):
    return [outcome.body["Item"] for outcome in outcomes]


def driven(client):
    return BotoDriver(lambda: client, "table", Clock())


def aio_driven(client):
    return AioDriver(lambda: client, "table", Clock())


def test_operations_are_named_as_the_sdk_has_them():
    assert method_name("UpdateItem") == "update_item"
    assert method_name("TransactWriteItems") == "transact_write_items"
    assert method_name("Query") == "query"


def asking():
    first = yield (get("a"),)
    second = yield (get("b"), get("c"), get("d"))
    waited = yield Pause(0.0)
    return keys(first), keys(second), waited


EXPECTED = (["a"], ["b", "c", "d"], [])


def test_outcomes_come_in_the_order_of_their_requests():
    client = Client()
    driver = driven(client)
    assert driver.run(asking()) == EXPECTED
    assert len(client.threads) > 1
    driver.close()
    assert client.closed
    # What was let go of is made again when it is needed.
    assert driver.run(asking()) == EXPECTED
    driver.close()


async def test_outcomes_come_in_the_order_of_their_requests_on_a_loop():
    driver = aio_driven(AioClient())
    assert await driver.run(asking()) == EXPECTED
    await driver.close()


def test_a_loop_for_each_call_is_a_client_for_each_loop():
    made = []

    def connect():
        made.append(AioClient())
        return made[-1]

    driver = AioDriver(connect, "table", Clock())
    for _ in range(3):
        assert asyncio.run(driver.run(asking())) == EXPECTED
    assert len(made) == 3


def failing():
    try:
        yield (get("a"),)
    except KeyboardInterrupt:
        # It may still send, to give back what it holds.
        outcomes = yield (get("b"),)
        raise LookupError(keys(outcomes)) from None


def test_an_interrupt_is_passed_on_to_the_flow_which_may_still_send():
    client = Client()
    client.raises["a"] = KeyboardInterrupt()
    driver = driven(client)
    with pytest.raises(LookupError, match="b"):
        driver.run(failing())
    driver.close()


def test_an_error_of_the_flow_is_raised():
    def flow():
        yield (get("a"),)
        raise ZeroDivisionError

    driver = driven(Client())
    with pytest.raises(ZeroDivisionError):
        driver.run(flow())
    driver.close()


async def test_a_cancellation_waits_for_what_is_under_way_and_undoes_it():
    client = AioClient()
    client.answer.clear()
    driver = aio_driven(client)
    undone = []

    def taking():
        yield (get("a"),)
        return "taken"

    def undo(result):
        undone.append((result, keys((yield (get("back"),)))))

    task = asyncio.create_task(driver.run(taking(), undo=undo))
    await client.arrived.wait()
    task.cancel()
    # However often it is cancelled, the fate of what is under way is awaited.
    loop_turns = asyncio.Event()
    asyncio.get_running_loop().call_soon(loop_turns.set)
    await loop_turns.wait()
    task.cancel()
    assert not task.done()
    client.answer.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert undone == [("taken", ["back"])]


async def test_a_cancellation_ends_a_pause_at_once():
    driver, heard = aio_driven(AioClient()), []
    pausing = asyncio.Event()

    def waiting():
        pausing.set()
        try:
            yield Pause(3_600)
        except asyncio.CancelledError:
            heard.append(keys((yield (get("a"),))))
            raise

    task = asyncio.create_task(driver.run(waiting()))
    await pausing.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert heard == [["a"]]


async def test_a_cancelled_flow_that_fails_is_cancelled():
    client = AioClient()
    client.answer.clear()
    driver = aio_driven(client)

    def rejected():
        yield (get("a"),)
        raise ValueError

    task = asyncio.create_task(driver.run(rejected()))
    await client.arrived.wait()
    task.cancel()
    client.answer.set()
    with pytest.raises(asyncio.CancelledError):
        await task


def response(code, status=400, **more):
    return {
        "Error": {"Code": code, "Message": "why"},
        "ResponseMetadata": {"HTTPStatusCode": status},
        **more,
    }


ITEM = {"PK": {"S": "a"}}
OUTCOMES = {
    "ConditionalCheckFailedException": ConditionFailed(None),
    "TransactionConflictException": Conflicted(),
    "TransactionInProgressException": Conflicted(),
    "ThrottlingException": Throttled("ThrottlingException", of_key=False),
    "RequestLimitExceeded": Throttled("RequestLimitExceeded", of_key=False),
    "ProvisionedThroughputExceededException": Throttled(
        "ProvisionedThroughputExceededException", of_key=True
    ),
    "InternalServerError": Unreachable("InternalServerError: why"),
}


@pytest.mark.parametrize("code", OUTCOMES)
def test_an_error_answer_says_what_became_of_the_request(code):
    assert from_error(response(code), "table") == OUTCOMES[code]


def test_a_failed_condition_shows_the_item():
    code = "ConditionalCheckFailedException"
    assert from_error(response(code, Item=ITEM), "table") == ConditionFailed(ITEM)
    assert from_error(response(code, Item={}), "table") == ConditionFailed(None)


@pytest.mark.parametrize(
    ("reason", "of_key"),
    [
        ("TableWriteKeyRangeThroughputExceeded", True),
        ("IndexReadKeyRangeThroughputExceeded", True),
        ("TableWriteMaxOnDemandThroughputExceeded", False),
        ("TableWriteAccountLimitExceeded", False),
        ("TableWriteProvisionedThroughputExceeded", False),
    ],
)
@pytest.mark.parametrize("code", ["ThrottlingException", "ProvisionedThroughputExceededException"])
def test_the_reason_of_a_throttle_tells_a_hot_key_from_a_table_at_its_cap(code, reason, of_key):
    given = response(code, ThrottlingReasons=[{"reason": reason, "resource": "arn"}])
    assert from_error(given, "table") == Throttled(reason, of_key=of_key)


def cancelled(*codes):
    reasons = [{"Code": code} for code in codes]
    return from_error(response("TransactionCanceledException", CancellationReasons=reasons), "t")


def test_a_cancelled_transaction_says_why():
    assert cancelled("None", "TransactionConflict") == Conflicted()
    assert cancelled("ThrottlingError", "None").of_key is False
    assert cancelled("None", "ProvisionedThroughputExceeded").of_key is True
    assert isinstance(cancelled("ValidationError", "None"), Refused)
    # A condition that failed is the news, whatever else was in the way.
    assert cancelled("ConditionalCheckFailed", "TransactionConflict") == TransactionFailed(
        (("ConditionalCheckFailed", None), ("TransactionConflict", None))
    )


REFUSED = {
    "ResourceNotFoundException": TableNotFound,
    "AccessDeniedException": AccessDenied,
    "ExpiredTokenException": AccessDenied,
    "RequestTimeTooSkewed": ClockSkewed,
    "InvalidSignatureException": ClockSkewed,
    "ValidationException": TableError,
}


@pytest.mark.parametrize("code", REFUSED)
def test_a_refusal_names_the_cause(code):
    outcome = from_exception(ClientError(response(code), "GetItem"), "my-table")
    assert type(outcome.error) is REFUSED[code]
    assert "why" in str(outcome.error)


@pytest.mark.parametrize(
    "error",
    [
        EndpointConnectionError(endpoint_url="http://nowhere"),
        ConnectTimeoutError(endpoint_url="http://nowhere"),
        ReadTimeoutError(endpoint_url="http://nowhere"),
        ConnectionResetError(),
        TimeoutError(),
    ],
)
def test_no_answer_leaves_the_requests_fate_open(error):
    outcome = from_exception(error, "table")
    assert isinstance(outcome, Unreachable)
    assert type(error).__name__ in outcome.reason


def test_missing_credentials_and_our_own_mistakes_are_no_outage():
    assert isinstance(from_exception(NoCredentialsError(), "table").error, AccessDenied)
    mistake = TypeError("ours")
    assert from_exception(mistake, "table") == Refused(mistake)


def scripted(name, steps, result):
    for step in range(steps):
        outcomes = yield (get(f"{name}{step}"),)
        assert keys(outcomes) == [f"{name}{step}"]
    if isinstance(result, Exception):
        raise result
    return result


def answer(effect):
    return [Answer({"Item": call.params["Key"]}) for call in effect]


def test_flows_run_together_join_their_requests():
    failed = ValueError("c")
    flow = together([scripted("a", 2, 1), scripted("b", 1, 2), scripted("c", 1, failed)])
    first = next(flow)
    assert [call.params["Key"] for call in first] == ["a0", "b0", "c0"]
    second = flow.send(answer(first))
    assert [call.params["Key"] for call in second] == ["a1"]
    with pytest.raises(StopIteration) as done:
        flow.send(answer(second))
    assert done.value.value == [1, 2, failed]


def test_a_flow_that_pauses_does_not_hold_up_the_others():
    def pausing():
        yield Pause(0.5)
        return (yield from scripted("p", 1, "paused"))

    flow = together([pausing(), scripted("a", 1, "a")])
    first = next(flow)
    assert [call.params["Key"] for call in first] == ["a0"]
    second = flow.send(answer(first))
    assert [call.params["Key"] for call in second] == ["p0"]
    with pytest.raises(StopIteration) as done:
        flow.send(answer(second))
    assert done.value.value == ["paused", "a"]


def test_an_interrupt_is_heard_by_all_flows_and_each_may_still_send():
    heard = []

    def careful(name):
        try:
            yield (get(name),)
        except KeyboardInterrupt:
            heard.append(name)
            yield from scripted(f"{name} back", 1, None)
            raise

    interrupt = KeyboardInterrupt()
    flow = together([careful("a"), scripted("b", 2, "b"), careful("c")])
    next(flow)
    cleaning = flow.throw(interrupt)
    assert heard == ["a", "c"]
    assert [call.params["Key"] for call in cleaning] == ["a back0", "c back0"]
    with pytest.raises(KeyboardInterrupt) as ended:
        flow.send(answer(cleaning))
    assert ended.value is interrupt


def test_flows_that_all_pause_wait_for_the_longest():
    def pausing(seconds):
        yield Pause(seconds)
        return seconds

    flow = together([pausing(0.1), pausing(0.3)])
    assert next(flow) == Pause(0.3)
    with pytest.raises(StopIteration) as done:
        flow.send([])
    assert done.value.value == [0.1, 0.3]
    with pytest.raises(StopIteration):
        next(together([]))
