"""The authorizer, asked as API Gateway asks it."""

from __future__ import annotations

import hashlib
import io
import json
import logging
from contextlib import redirect_stdout

import pytest

from authorizer import answers
from authorizer.gate import Gate, Undecided
from authorizer.settings import Settings, Unauthorized
from headgate import Limit
from headgate.observe import EmfMetrics
from tests.authorizer import events, issuer
from tests.authorizer.events import allowed

BOTH = pytest.mark.parametrize("ask", [events.rest, events.http])

API_KEY = {"by": "header", "name": "x-api-key", "hashed": True}
CLAIM = {"by": "claim", "name": "sub"}
TOKEN = {"issuer": issuer.ISSUER, "audience": [issuer.AUDIENCE]}


def entity_of(key):
    return "key:" + hashlib.sha256(key.encode()).hexdigest()[:32]


@BOTH
def test_requests_pass_with_their_standing_until_the_limit_and_then_not(make_gate, ask):
    gate = make_gate(API_KEY)
    given = [gate.answer(ask({"X-Api-Key": "secret-1"})) for _ in range(4)]
    assert [allowed(answer) for answer in given] == [True, True, True, False]
    assert [answer["context"]["remaining"] for answer in given] == ["2", "1", "0", "0"]
    passed, refused = given[0]["context"], given[3]["context"]
    assert passed["limit"] == "3"
    assert passed["policy"] == '"calls";q=3;w=86400'
    assert passed["standing"].startswith('"calls";r=2;t=')
    assert int(passed["reset"]) > 0
    assert "retryAfter" not in passed
    assert int(refused["retryAfter"]) > 0
    assert refused["error"] == "rate_limit_exceeded"
    assert refused["scope"] == "api"
    assert allowed(gate.answer(ask({"X-Api-Key": "secret-2"})))


@BOTH
def test_every_value_of_the_context_is_text(make_gate, ask):
    gate = make_gate({"by": "everyone"})
    for _ in range(4):
        told = gate.answer(ask())["context"]
        assert all(isinstance(value, str) for value in told.values())
        assert "everyone" not in told.values()


def test_a_key_is_nowhere_in_clear_text(backend, limiter, caplog):
    lines = io.StringIO()
    metered = backend.limiter(on_event=EmfMetrics(service="authorizer", stream=lines)).limiter
    gate = answering(
        metered, {"scopes": [{"key": API_KEY, "resource": "api", "cost": {"calls": 1}}]}
    )
    with caplog.at_level(logging.DEBUG), redirect_stdout(lines):
        given = [gate.answer(events.rest({"x-api-key": "secret-1"})) for _ in range(4)]
    said = json.dumps(given) + lines.getvalue() + caplog.text
    assert "Requests" in lines.getvalue()
    assert "secret-1" not in said
    assert entity_of("secret-1") not in said
    assert limiter.available(entity_of("secret-1"), "api") == {"calls": 0}
    assert limiter.available("secret-1", "api") == {"calls": 3}


@BOTH
def test_leaving_the_key_out_gains_nothing(make_gate, limiter, ask):
    gate = make_gate(API_KEY)
    silent = [{}, {"x-api-key": ""}, {"other": "1"}, {}]
    assert [allowed(gate.answer(ask(headers))) for headers in silent] == [True, True, True, False]
    assert limiter.available("anonymous", "api") == {"calls": 0}


def test_a_header_may_be_kept_as_it_is_and_what_cannot_be_an_id_is_hashed(make_gate, limiter):
    gate = make_gate({"by": "header", "name": "X-Tenant", "hashed": False})
    for tenant in ("acme", "a#b", "x" * 2000, "caf\u00e9"):
        assert allowed(gate.answer(events.http({"x-tenant": tenant})))
    assert limiter.available("acme", "api") == {"calls": 2}
    assert limiter.available("caf\u00e9", "api") == {"calls": 2}
    assert limiter.available(entity_of("a#b"), "api") == {"calls": 2}
    assert limiter.available(entity_of("x" * 2000), "api") == {"calls": 2}
    assert limiter.available("anonymous", "api") == {"calls": 3}


def test_a_usage_plans_key_is_known_by_its_id(make_gate, limiter):
    gate = make_gate({"by": "api_key_id"})
    assert allowed(gate.answer(events.rest(api_key_id="k1d")))
    assert allowed(gate.answer(events.rest()))
    assert allowed(gate.answer(events.http()))
    assert limiter.available("k1d", "api") == {"calls": 2}
    assert limiter.available("anonymous", "api") == {"calls": 1}


@BOTH
@pytest.mark.parametrize(
    ("address", "entity"),
    [
        ("203.0.113.7", "203.0.113.7"),
        ("2001:db8:1:2:aaaa::1", "2001:db8:1:2::/64"),
        ("2001:db8:1:2:bbbb::2", "2001:db8:1:2::/64"),
        ("::ffff:203.0.113.7", "203.0.113.7"),
        ("", "anonymous"),
    ],
)
def test_an_address_is_the_one_that_api_gateway_saw(make_gate, limiter, ask, address, entity):
    gate = make_gate({"by": "ip"})
    assert allowed(gate.answer(ask({"X-Forwarded-For": "198.51.100.1"}, address=address)))
    assert limiter.available(entity, "api") == {"calls": 2}


@BOTH
def test_a_verified_claim_names_the_caller_and_goes_on_to_the_backend(make_gate, limiter, key, ask):
    gate = make_gate(CLAIM, token={**TOKEN, "pass_on": ["sub", "admin", "groups", "missing"]})
    text = issuer.token(key, issuer.claims(admin=True, groups=["a"], limit="99"))
    told = gate.answer(ask({"Authorization": f"Bearer {text}"}))["context"]
    assert limiter.available("user-1", "api") == {"calls": 2}
    assert told["sub"] == "user-1"
    assert told["admin"] == "true"
    assert json.loads(told["groups"]) == ["a"]
    assert "missing" not in told
    assert told["limit"] == "3"


@BOTH
def test_an_unverified_claim_neither_empties_anothers_bucket_nor_invents_one(
    make_gate, limiter, ask
):
    gate = make_gate(CLAIM, token=TOKEN)
    forger = issuer.make_key()
    forged = [issuer.token(forger, issuer.claims(sub=f"user-{n}")) for n in (1, 2, 3, 4)]
    given = [gate.answer(ask({"Authorization": f"Bearer {text}"})) for text in forged]
    assert [allowed(answer) for answer in given] == [True, True, True, False]
    assert limiter.available("user-1", "api") == {"calls": 3}
    assert limiter.available("anonymous", "api") == {"calls": 0}


@pytest.mark.parametrize("token", [TOKEN, None])
def test_claims_that_another_authorizer_left_are_not_believed(make_gate, limiter, token):
    event = events.http()
    event["requestContext"]["authorizer"] = {"jwt": {"claims": {"sub": "user-1"}}}
    assert allowed(make_gate(CLAIM, token=token).answer(event))
    assert limiter.available("user-1", "api") == {"calls": 3}


@pytest.mark.parametrize(
    ("key_setting", "token"),
    [
        ({**API_KEY, "required": True}, None),
        ({"by": "api_key_id", "required": True}, None),
        (CLAIM, {**TOKEN, "required": True}),
    ],
)
def test_what_is_required_and_missing_is_401_of_rest_and_a_no_of_http(
    make_gate, limiter, key_setting, token
):
    gate = make_gate(key_setting, token=token)
    with pytest.raises(Unauthorized) as refused:
        gate.answer(events.rest())
    assert str(refused.value) == "Unauthorized"  # the very word that API Gateway looks for
    assert gate.answer(events.http()) == {
        "isAuthorized": False,
        "context": {"error": "unauthorized"},
    }
    assert limiter.available("anonymous", "api") == {"calls": 3}


def test_without_the_issuers_keys_callers_are_anonymous_or_undecided(make_gate, key, endpoint):
    endpoint.down = True
    event = events.rest({"authorization": issuer.token(key)})
    assert allowed(make_gate(CLAIM, token=TOKEN).answer(event))
    with pytest.raises(Undecided, match="keys"):
        make_gate(CLAIM, token={**TOKEN, "required": True}).answer(event)


@BOTH
def test_all_scopes_pass_or_none_is_drawn_from(make_gate, limiter, ask):
    limiter.set_limits([Limit.per_day("calls", 1)], resource="addresses")
    address = {"key": {"by": "ip"}, "resource": "addresses", "cost": {"calls": 1}, "name": "yours"}
    gate = make_gate(API_KEY, also=[address])
    given = [gate.answer(ask({"x-api-key": "k"})) for _ in range(2)]
    assert [allowed(answer) for answer in given] == [True, False]
    assert given[1]["context"]["scope"] == "yours"
    assert limiter.available(entity_of("k"), "api") == {"calls": 2}


def test_the_name_of_an_operation_is_a_cost(limiter):
    limiter.set_costs({"export": {"calls": 3}}, resource="api")
    scope = {"key": {"by": "everyone"}, "resource": "api", "cost": "export"}
    gate = answering(limiter, {"scopes": [scope]})
    assert [allowed(gate.answer(events.http())) for _ in range(2)] == [True, False]


def answering(limiter, settings):
    return Gate(limiter, Settings.parse(json.dumps(settings)))


@BOTH
def test_without_the_table_the_policy_decides_and_says_so(adapter, make_gate, ask):
    adapter.cut()
    with pytest.raises(Undecided, match="rate_limiter_unavailable"):
        make_gate(API_KEY).answer(ask({"x-api-key": "k"}))
    passed = make_gate(API_KEY, on_unavailable="allow").answer(ask({"x-api-key": "k"}))
    assert allowed(passed)
    assert passed["context"]["degraded"] == "true"
    assert "the cable is cut" in passed["context"]["degradedReason"]


def test_limits_that_nobody_set_are_a_fault_that_names_no_caller(limiter):
    limiter.delete_limits()
    scope = {"key": {"by": "header", "name": "x"}, "resource": "unset", "cost": {"calls": 1}}
    gate = answering(limiter, {"scopes": [scope]})
    with pytest.raises(Undecided) as failed:
        gate.answer(events.http({"x": "somebody"}))
    assert str(failed.value) == "LimitsNotFound"
    assert failed.value.__suppress_context__


@pytest.mark.parametrize(
    "path", ["items/7", "", "*", "items/*/x", "a/${aws:username}", "a//b", "?x=%2F"]
)
def test_a_policy_is_for_this_stage_and_method_whatever_the_path(make_gate, path):
    prefix = "arn:aws:execute-api:us-east-1:123456789012:abcdef123/prod/GET"
    event = events.rest(arn=f"{prefix}/{path}")
    (statement,) = make_gate({"by": "everyone"}).answer(event)["policyDocument"]["Statement"]
    assert statement["Resource"] == f"{prefix}/*"
    assert statement["Action"] == "execute-api:Invoke"


def test_the_principal_is_nobodys_id(make_gate):
    answer = make_gate(API_KEY).answer(events.rest({"x-api-key": "k"}))
    assert answer["principalId"] == answers.PRINCIPAL


def test_a_setting_that_no_construct_writes_is_refused(limiter):
    scope = {"key": {"by": "mood"}, "resource": "api", "cost": {"calls": 1}}
    with pytest.raises(ValueError, match="no way to limit by 'mood'"):
        answering(limiter, {"scopes": [scope]})
