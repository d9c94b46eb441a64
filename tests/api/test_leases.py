"""Leases that callers hold: corrected and given back once, and by nobody who made one up."""

import base64
import json
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.answers import BadLease
from api.signing import Signer
from headgate import Limit, Ticket

CHAT = [Limit.per_day("calls", 10), Limit.per_day("tokens", 1000)]


@pytest.fixture
def chat(api):
    api.limiter.set_limits(CHAT, resource="chat")
    return api


def leased(api, seconds=60, **tokens):
    taken = tokens or {"calls": 1, "tokens": 500}
    answer = api.check(resource="chat", tokens=taken, lease_seconds=seconds)
    assert answer.status == 200, answer.json
    return answer.json["lease"]


def test_an_estimate_is_corrected_by_what_it_was(chat):
    answer = chat.post("lease/adjust", lease=leased(chat), tokens={"tokens": -380})
    assert answer.status == 200
    assert answer.json["done"] is True
    assert answer.json["held"] == {"calls": 1, "tokens": 120}
    assert [(one["limit"], one["remaining"]) for one in answer.json["limits"]] == [
        ("calls", 9),
        ("tokens", 880),
    ]
    assert chat.available("u1", "chat") == {"calls": 9, "tokens": 880}


def test_more_than_the_estimate_may_go_into_debt(chat):
    answer = chat.post("lease/adjust", lease=leased(chat), tokens={"tokens": 700})
    assert answer.json["held"]["tokens"] == 1200
    assert chat.available("u1", "chat")["tokens"] == -200


def test_what_was_taken_is_given_back(chat):
    answer = chat.post("lease/release", lease=leased(chat))
    assert (answer.status, answer.json["done"]) == (200, True)
    assert chat.available("u1", "chat") == {"calls": 10, "tokens": 1000}


def test_some_of_it_is_given_back_and_the_rest_by_the_next_lease(chat):
    answer = chat.post("lease/release", lease=leased(chat), tokens={"tokens": 200})
    assert answer.json["held"] == {"calls": 1, "tokens": 300}
    chat.post("lease/release", lease=answer.json["lease"])
    assert chat.available("u1", "chat") == {"calls": 10, "tokens": 1000}


@pytest.mark.parametrize("operation", ["release", "adjust"])
def test_the_same_request_again_changes_nothing_and_says_the_same(chat, operation):
    body = {"lease": leased(chat)} | ({"tokens": {"tokens": 30}} if operation == "adjust" else {})
    first = chat.post(f"lease/{operation}", **body)
    before = chat.available("u1", "chat")
    again = chat.post(f"lease/{operation}", **body)
    assert again.status == 200
    assert again.json["done"] is False
    assert again.json["held"] == first.json["held"]
    assert chat.available("u1", "chat") == before


def test_a_lease_is_not_used_for_two_things(chat):
    lease = leased(chat)
    chat.post("lease/release", lease=lease)
    answer = chat.post("lease/adjust", lease=lease, tokens={"tokens": -1})
    assert (answer.status, answer.json["error"]) == (403, "lease_spent")
    assert chat.available("u1", "chat") == {"calls": 10, "tokens": 1000}


def test_a_lease_expires(chat):
    lease = leased(chat, seconds=60)
    chat.backend.time.advance(61)
    answer = chat.post("lease/release", lease=lease)
    assert (answer.status, answer.json["error"]) == (403, "lease_expired")


def test_a_lease_that_was_altered_or_made_up_is_403(chat):
    lease = leased(chat)
    version, key, held, mac = lease.split(".")
    data = json.loads(zlib.decompress(base64.urlsafe_b64decode(held + "==")))
    more = json.dumps(data).replace("500000", "900000")
    forged = base64.urlsafe_b64encode(zlib.compress(more.encode())).decode().rstrip("=")
    for wrong in (
        f"{version}.{key}.{forged}.{mac}",
        f"{version}.{key}.{held}.{mac[:-2]}AA",
        f"{version}.{key}.{held}.",
        f"{version}.00000000.{held}.{mac}",
        f"hg2.{key}.{held}.{mac}",
        "nonsense",
        "....",
        "é.ü.ö.\udcff",
    ):
        answer = chat.post("lease/release", lease=wrong)
        assert (answer.status, answer.json["error"]) == (403, "bad_lease"), wrong
    assert chat.available("u1", "chat") == {"calls": 9, "tokens": 500}


def test_a_lease_of_another_namespace_is_refused(chat):
    lease = leased(chat)
    other = Signer(lambda stage: "k" * 64 if stage == "AWSCURRENT" else None)
    ticket = other.read(lease).as_dict()
    text = json.dumps(ticket).replace("behaviours_", "elsewhere_x")
    other.ready()
    moved = other.sign(Ticket.from_dict(json.loads(text)))
    assert chat.post("lease/release", lease=moved).status == 400
    assert chat.available("u1", "chat") == {"calls": 9, "tokens": 500}


def test_leases_outlive_a_new_key(chat):
    lease = leased(chat)
    chat.keys |= {"AWSPREVIOUS": chat.keys["AWSCURRENT"], "AWSCURRENT": "n" * 64}
    chat.signer._fetched = None
    newer = leased(chat)
    assert newer.split(".")[1] != lease.split(".")[1]
    for each in (lease, newer):
        assert chat.post("lease/release", lease=each).status == 200
    chat.keys |= {"AWSPREVIOUS": "m" * 64}
    old = leased(chat)
    chat.keys |= {"AWSPREVIOUS": "m" * 64, "AWSCURRENT": "z" * 64}
    chat.signer._fetched = None
    assert chat.post("lease/release", lease=old).status == 403


def test_a_key_that_another_process_has_seen_first_is_looked_for(chat):
    now = [0.0]
    keys = {"AWSCURRENT": "a" * 64}
    mine = Signer(keys.get, lambda: now[0])
    theirs = Signer(keys.get, lambda: now[0])
    ticket = chat.signer.read(leased(chat))
    mine.ready()
    keys |= {"AWSPREVIOUS": "a" * 64, "AWSCURRENT": "b" * 64}
    theirs.ready()
    lease = theirs.sign(ticket)
    with pytest.raises(BadLease):
        mine.read(lease)
    now[0] += 11
    assert mine.read(lease) == ticket


def test_without_a_key_nothing_is_taken(chat):
    chat.keys.clear()
    chat.signer._fetched = None
    chat.signer._keys.clear()
    answer = chat.check(resource="chat", tokens={"tokens": 1}, lease_seconds=60)
    assert answer.status == 503
    assert chat.available("u1", "chat") == {"calls": 10, "tokens": 1000}


@pytest.mark.parametrize(
    ("operation", "tokens", "says"),
    [
        ("release", {"tokens": 501}, "501"),
        ("adjust", {"tokens": -501}, "501"),
        ("adjust", {"minutes": 1}, "'minutes'"),
        ("adjust", {}, "tokens is {}"),
        ("release", {"tokens": 0}, "tokens.tokens must be bigger than or equal to 1: 0"),
        ("adjust", {"tokens": 1.5}, "tokens.tokens must be integer: 1.5"),
    ],
)
def test_a_correction_that_cannot_be_right_is_400(chat, operation, tokens, says):
    answer = chat.post(f"lease/{operation}", lease=leased(chat), tokens=tokens)
    assert answer.status == 400
    assert says in answer.json["message"]
    assert chat.available("u1", "chat") == {"calls": 9, "tokens": 500}


@given(st.text(max_size=200))
def test_no_text_is_taken_for_a_lease(text):
    signer = Signer(lambda stage: "k" * 64 if stage == "AWSCURRENT" else None)
    with pytest.raises(BadLease):
        signer.read(text)
