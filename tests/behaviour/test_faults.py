"""Faults as the SDKs see them: sockets that refuse, hang or close, and errors on the wire."""

from __future__ import annotations

import uuid
from contextlib import ExitStack

import boto3
import pytest
from aiobotocore.config import AioConfig
from aiobotocore.session import get_session
from botocore.config import Config

from headgate import (
    AccessDenied,
    BreakerState,
    ClockSkewed,
    Limit,
    RateLimiter,
    RateLimiterUnavailable,
    RateLimitExceeded,
    TableError,
    TableNotFound,
    ValidationError,
)
from tests.behaviour.backends import NAMESPACE_ID
from tests.limiters import AgreedClock, Async, Sync, Time, create_table
from tests.servers import THROTTLE, Do, black_hole, error, nobody, serving

RPM = [Limit.per_minute("rpm", 10)]
ONE = {"rpm": 1}


@pytest.fixture(params=[Sync, Async], ids=["sync", "async"])
def kind(request):
    return request.param


@pytest.fixture
def time():
    return Time()


@pytest.fixture
def make(kind, time):
    """Makes clients of one kind at any URL."""
    with ExitStack() as stack:

        def made(url, table="table", **options):
            given = {"namespace_id": NAMESPACE_ID, "clock": AgreedClock(time), "limits": RPM}
            limiter = kind.made(table, endpoint_url=url, **(given | options))
            stack.callback(limiter.close)
            return limiter

        yield made


@pytest.fixture
def faulty(ministack, make):
    """A client whose requests to a real table pass a server that the test can make misbehave."""
    with serving(lambda *_: Do.FORWARD, before=ministack.endpoint_url) as server:
        table = f"table-{uuid.uuid4().hex}"
        create_table(table, ministack.endpoint_url)
        limiter = make(server.url, table, read_timeout=30)
        limiter.server = server
        yield limiter


def take(limiter, amount=1, **options):
    with limiter.acquire("alice", "gpt-4", {"rpm": amount}, **options) as lease:
        return lease


def unreachable(limiter, attempts):
    with pytest.raises(RateLimiterUnavailable):
        take(limiter)
    assert len(limiter.calls) == attempts
    lease = take(limiter, on_unavailable="allow")
    assert lease.degraded
    assert lease.degraded_reason
    assert len(limiter.calls) == 2 * attempts


@pytest.mark.parametrize("attempts", [1, 2])
def test_a_refused_connection_is_decided_within_the_attempts(make, attempts):
    unreachable(make(nobody(), attempts=attempts), attempts)


@pytest.mark.parametrize("attempts", [1, 2])
def test_a_server_that_never_answers_is_decided_within_the_attempts(make, attempts):
    with black_hole() as url:
        unreachable(make(url, attempts=attempts, read_timeout=0.02), attempts)


def test_a_connection_that_closes_is_repeated_by_the_client_and_not_by_the_sdk(make):
    with serving(lambda *_: Do.DROP) as server:
        unreachable(make(server.url), 2)
        assert len(server.seen) == 4


@pytest.mark.parametrize(
    "code", ["InternalServerError", "ServiceUnavailable", "SomethingNew", "InternalFailure"]
)
def test_a_server_error_is_an_outage(make, code):
    with serving(lambda *_: error(code, status=500)) as server:
        unreachable(make(server.url), 2)
        assert len(server.seen) == 4


REFUSALS = {
    "AccessDeniedException": AccessDenied,
    "UnrecognizedClientException": AccessDenied,
    "ExpiredTokenException": AccessDenied,
    "ResourceNotFoundException": TableNotFound,
    "InvalidSignatureException": ClockSkewed,
    "ValidationException": TableError,
    "ItemCollectionSizeLimitExceededException": TableError,
}


@pytest.mark.parametrize("code", REFUSALS)
def test_a_refusal_is_an_error_even_where_the_policy_is_allow(make, code):
    with serving(lambda *_: error(code)) as server:
        limiter = make(server.url, on_unavailable="allow")
        for count in range(1, 8):
            with pytest.raises(REFUSALS[code]) as caught:
                take(limiter, on_unavailable="allow")
            assert "as the test wants it" in str(caught.value)
            assert len(server.seen) == count
        assert limiter.breaker is BreakerState.CLOSED


def test_a_table_that_is_not_there_is_named(ministack, make):
    limiter = make(ministack.endpoint_url, table="no-such-table", on_unavailable="allow")
    with pytest.raises(TableNotFound, match="no-such-table"):
        take(limiter)


def test_no_credentials_are_an_error_even_where_the_policy_is_allow(kind, monkeypatch):
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    session = {Sync: boto3.Session, Async: get_session}[kind]()
    limiter = kind.made("table", endpoint_url=nobody(), session=session, on_unavailable="allow")
    with pytest.raises(AccessDenied, match="credentials"):
        take(limiter)
    limiter.close()


@pytest.mark.parametrize("code", ["ProvisionedThroughputExceededException", "ThrottlingException"])
def test_throttling_is_a_rejection_with_a_short_wait_and_never_admission(faulty, code):
    take(faulty)
    faulty.server.answer = lambda *_: error(code)
    for _ in range(10):
        with pytest.raises(RateLimitExceeded) as caught:
            take(faulty, on_unavailable="allow")
        assert caught.value.contended
        assert caught.value.retry_after == 0.1
    assert faulty.breaker is BreakerState.CLOSED


@pytest.mark.parametrize("code", ["ProvisionedThroughputExceededException", "ThrottlingException"])
def test_throttling_of_the_first_reads_is_no_admission_either(make, code):
    with serving(lambda *_: error(code)) as server:
        for options in ({}, {"namespace_id": None}):
            limiter = make(server.url, on_unavailable="allow", **options)
            with pytest.raises(RateLimitExceeded) as caught:
                take(limiter)
            assert caught.value.contended
            assert (caught.value.entity_id, caught.value.resource) == ("alice", "gpt-4")


def test_throttling_of_a_change_of_limits_is_no_admission_either(faulty):
    take(faulty)
    faulty.server.answer = lambda operation, body: (
        THROTTLE
        if operation == "BatchGetItem" or "lv" in body.get("ExpressionAttributeNames", {}).values()
        else Do.FORWARD
    )
    with pytest.raises(RateLimitExceeded) as caught:
        take(faulty, limits=[Limit.per_minute("rpm", 5)], on_unavailable="allow")
    assert caught.value.contended


def test_a_change_of_limits_that_failed_is_made_by_the_next_acquire(faulty, ministack, make, time):
    admin = make(ministack.endpoint_url, faulty.limiter._core.table)
    admin.set_limits(RPM, resource="gpt-4")
    take(faulty)
    admin.set_limits([Limit.per_minute("rpm", 5)], resource="gpt-4")
    time.advance(60)
    faulty.server.answer = lambda _, body: (
        Do.DROP if "lv" in body.get("ExpressionAttributeNames", {}).values() else Do.FORWARD
    )
    # What was drawn by the old limits stands.
    assert take(faulty).limits[0].capacity == 10
    faulty.server.answer = lambda *_: Do.FORWARD
    assert take(faulty).limits[0].capacity == 5


def test_a_throttled_acquire_passes_when_it_is_worth_waiting(faulty):
    take(faulty)
    remaining = [THROTTLE] * 3
    faulty.server.answer = lambda *_: remaining.pop() if remaining else Do.FORWARD
    assert take(faulty, max_wait=30).consumed == ONE


def test_keys_that_a_batch_left_unread_are_read_again(faulty):
    left = []

    def half(operation, body):
        if operation == "BatchGetItem" and not left:
            left.append(body["RequestItems"])
            return 200, {"Responses": {}, "UnprocessedKeys": body["RequestItems"]}
        return Do.FORWARD

    faulty.server.answer = half
    assert take(faulty).consumed == ONE
    assert left


def test_a_debit_without_an_answer_is_repeated_and_errs_towards_less(faulty):
    take(faulty)
    answers = [Do.LOSE]
    faulty.server.answer = lambda *_: answers.pop() if answers else Do.FORWARD
    lease = take(faulty, 2)
    assert lease.consumed == {"rpm": 2}
    # Taken twice, for the first took effect after all.
    assert faulty.available("alice", "gpt-4") == {"rpm": 5}


def test_a_release_without_an_answer_is_not_repeated(faulty):
    with faulty.acquire("alice", "gpt-4", {"rpm": 4}) as lease:
        pass
    answers = [Do.LOSE]
    faulty.server.answer = lambda *_: answers.pop() if answers else Do.FORWARD
    with faulty.sending() as sent:
        assert lease.release() is False
    assert sent == ["UpdateItem"]
    assert faulty.available("alice", "gpt-4") == {"rpm": 10}


def test_a_release_that_is_throttled_is_sent_again(faulty):
    with faulty.acquire("alice", "gpt-4", {"rpm": 4}) as lease:
        pass
    answers = [THROTTLE, error("TransactionConflictException")]
    faulty.server.answer = lambda *_: answers.pop() if answers else Do.FORWARD
    assert lease.release() is True
    assert faulty.available("alice", "gpt-4") == {"rpm": 10}


def test_a_rollback_that_is_throttled_does_not_hide_the_error(faulty):
    with pytest.raises(KeyError), faulty.acquire("alice", "gpt-4", {"rpm": 4}):
        answers = [THROTTLE]
        faulty.server.answer = lambda *_: answers.pop() if answers else Do.FORWARD
        raise KeyError("mine")
    assert faulty.available("alice", "gpt-4") == {"rpm": 10}


def test_a_conflict_with_a_transaction_is_tried_again(faulty):
    take(faulty)
    answers = [error("TransactionConflictException")]
    faulty.server.answer = lambda *_: answers.pop() if answers else Do.FORWARD
    assert take(faulty).consumed == ONE
    assert faulty.available("alice", "gpt-4") == {"rpm": 8}


CONFLICT = error(
    "TransactionCanceledException",
    CancellationReasons=[{"Code": "TransactionConflict", "Message": "busy"}, {"Code": "None"}],
)


def test_two_clients_that_register_a_namespace_at_once_agree_on_it(ministack, make):
    table = f"table-{uuid.uuid4().hex}"
    create_table(table, ministack.endpoint_url)
    rival = make(ministack.endpoint_url, table, namespace_id=None)
    conflicts = [CONFLICT, CONFLICT]

    def meanwhile(operation, _body):
        if operation != "TransactWriteItems":
            return Do.FORWARD
        if len(conflicts) == 1:
            # The other's transaction, which was in the way, is through.
            take(rival)
        return conflicts.pop() if conflicts else Do.FORWARD

    with serving(meanwhile, before=ministack.endpoint_url) as server:
        limiter = make(server.url, table, namespace_id=None, read_timeout=30)
        take(limiter)
    assert limiter.limiter._core.ns == rival.limiter._core.ns


def test_a_registration_whose_answer_was_lost_is_found_again(ministack, make):
    table = f"table-{uuid.uuid4().hex}"
    create_table(table, ministack.endpoint_url)
    lost = [Do.LOSE]
    with serving(
        lambda operation, _: (
            lost.pop() if lost and operation == "TransactWriteItems" else Do.FORWARD
        ),
        before=ministack.endpoint_url,
    ) as server:
        limiter = make(server.url, table, namespace_id=None, read_timeout=30)
        take(limiter)
    other = make(ministack.endpoint_url, table, namespace_id=None)
    assert other.available("alice", "gpt-4") == {"rpm": 9}


def test_an_injected_client_that_retries_by_itself_is_refused(ministack):
    plain = boto3.client("dynamodb", endpoint_url=ministack.endpoint_url)
    with pytest.raises(ValidationError, match="total_max_attempts"):
        Sync.made("table", client=plain)
    plain.close()


async def test_an_injected_client_of_a_loop_is_held_to_the_same(ministack):
    table = f"table-{uuid.uuid4().hex}"
    create_table(table, ministack.endpoint_url)
    where = {"endpoint_url": ministack.endpoint_url}
    async with get_session().create_client("dynamodb", **where) as plain:
        with pytest.raises(ValidationError, match="total_max_attempts"):
            RateLimiter(table, client=plain)
    once = AioConfig(retries={"total_max_attempts": 1})
    async with get_session().create_client("dynamodb", config=once, **where) as client:
        for _ in range(2):
            limiter = RateLimiter(table, client=client, limits=RPM)
            async with limiter, limiter.acquire("alice", "gpt-4", ONE) as lease:
                assert lease.consumed == ONE
        # It is not the limiter's to close.
        assert (await client.list_tables())["TableNames"]


@pytest.mark.parametrize("retries", [{"total_max_attempts": 1}, {"max_attempts": 0}])
def test_an_injected_client_that_does_not_retry_is_used(ministack, retries):
    table = f"table-{uuid.uuid4().hex}"
    create_table(table, ministack.endpoint_url)
    client = boto3.client(
        "dynamodb", endpoint_url=ministack.endpoint_url, config=Config(retries=retries)
    )
    closed = []
    client.close = lambda: closed.append(client)
    for _ in range(2):
        limiter = Sync.made(table, client=client, limits=RPM)
        assert take(limiter).consumed == ONE
        limiter.close()
    # It is not the limiter's to close.
    assert closed == []
    del client.close
    client.close()
