"""Checks over HTTP: what passes, what does not, and what callers are told."""

import hashlib
import json
import re

import pytest

from headgate import Limit

DAY = 86_400


def test_a_check_takes_and_says_what_is_left(api):
    answer = api.check()
    assert answer.status == 200
    told = answer.json
    assert told["allowed"] is True
    assert (told["remaining"], told["capacity"]) == (2, 3)
    assert told["retry_after_seconds"] == 0
    assert told["degraded"] is False
    assert told["reset_at"] > 0
    assert told["most_restrictive"] == {"scope": None, "resource": "api", "limit": "calls"}
    assert told["blocked"] == []
    assert told["lease"] is None
    assert answer.headers["x-ratelimit-limit"] == "3"
    assert answer.headers["x-ratelimit-remaining"] == "2"
    assert "retry-after" not in answer.headers
    assert api.available("u1") == {"calls": 2}


def test_a_check_that_does_not_pass_is_429_and_takes_nothing(api):
    assert api.check(tokens={"calls": 3}).status == 200
    refused = api.check()
    assert refused.status == 429
    assert refused.json["allowed"] is False
    assert refused.json["remaining"] == 0
    assert 0 < refused.json["retry_after_seconds"] <= DAY
    first = {"scope": None, "resource": "api", "limit": "calls"}
    assert refused.json["first_blocked"] == first
    assert refused.json["blocked"] == [first]
    assert int(refused.headers["retry-after"]) >= refused.json["retry_after_seconds"]
    assert refused.headers["x-ratelimit-scope"] == "api"
    assert refused.headers["x-ratelimit-first-blocked"] == '"calls";scope="api"'


def test_what_can_never_pass_has_no_time_to_come_again(api):
    refused = api.check(tokens={"calls": 4})
    assert refused.status == 429
    assert refused.json["retry_after_seconds"] is None
    assert "retry-after" not in refused.headers


def test_a_dry_run_says_the_same_and_takes_nothing(api):
    answer = api.check(tokens={"calls": 3}, dry_run=True)
    assert (answer.status, answer.json["dry_run"]) == (200, True)
    assert api.available("u1") == {"calls": 3}
    refused = api.check(tokens={"calls": 4}, dry_run=True)
    assert (refused.status, refused.json["allowed"]) == (429, False)
    assert refused.json["first_blocked"]["limit"] == "calls"
    assert refused.json["retry_after_seconds"] is None
    assert api.available("u1") == {"calls": 3}


def test_a_number_is_taken_of_every_limit(api):
    api.limiter.set_limits([Limit.per_day("calls", 3), Limit.per_day("units", 9)], resource="two")
    assert api.check(resource="two", tokens=2).status == 200
    assert api.available("u1", "two") == {"calls": 1, "units": 7}


def test_an_operation_costs_what_the_configuration_says(api):
    api.limiter.set_costs({"export": {"calls": 3}}, resource="api")
    assert api.check(tokens="export").json["remaining"] == 0
    unknown = api.check("u2", tokens="import")
    assert unknown.status == 400
    assert "no operation 'import'" in unknown.json["message"]


def test_scopes_are_entities_with_limits_of_their_own(api):
    for scope, amount in (("user", 2), ("ip", 5), ("global", 7), ("api_key", 4)):
        api.limiter.set_limits([Limit.per_day("calls", amount)], resource=f"api@{scope}")
    answer = api.check(
        scope="user", also=[{"scope": "ip", "identifier": "203.0.113.9"}, {"scope": "global"}]
    )
    assert answer.status == 200
    assert answer.json["most_restrictive"] == {"scope": "user", "resource": "api", "limit": "calls"}
    assert [(one["scope"], one["remaining"]) for one in answer.json["limits"]] == [
        ("user", 1),
        ("ip", 4),
        ("global", 6),
    ]
    assert api.available("user:u1", "api@user") == {"calls": 1}
    assert api.available("ip:203.0.113.9", "api@ip") == {"calls": 4}
    assert api.available("global", "api@global") == {"calls": 6}


def test_an_api_key_is_never_stored_as_it_is(api):
    api.limiter.set_limits([Limit.per_day("calls", 4)], resource="api@api_key")
    assert api.check("sk-secret", scope="api_key").status == 200
    digest = hashlib.sha256(b"sk-secret").hexdigest()[:32]
    assert api.available(f"api_key:{digest}", "api@api_key") == {"calls": 3}


def test_addresses_of_one_ipv6_network_share_a_bucket(api):
    api.limiter.set_limits([Limit.per_day("calls", 4)], resource="api@ip")
    for address in ("2001:db8::1", "2001:db8::2"):
        assert api.check(address, scope="ip").status == 200
    assert api.available("ip:2001:db8::/64", "api@ip") == {"calls": 2}


def test_all_scopes_or_none_and_who_blocked(api):
    limits = {"user": 10, "ip": 2, "global": 1}
    for scope, amount in limits.items():
        period = 60 if scope == "ip" else DAY
        limit = Limit.custom("calls", capacity=amount, refill_amount=amount, refill_period=period)
        api.limiter.set_limits([limit], resource=f"api@{scope}")
    body = {
        "scope": "user",
        "also": [{"scope": "ip", "identifier": "203.0.113.9"}, {"scope": "global"}],
    }
    assert api.check(tokens=1, **body).status == 200
    assert api.post("check", scope="ip", identifier="203.0.113.9", resource="api").status == 200
    refused = api.check(tokens=1, **body)
    assert refused.status == 429
    assert [one["scope"] for one in refused.json["blocked"]] == ["ip", "global"]
    # In order the address came first; what takes longest is what everybody shares.
    assert refused.json["first_blocked"] == {"scope": "ip", "resource": "api", "limit": "calls"}
    assert refused.json["most_restrictive"]["scope"] == "global"
    assert refused.headers["x-ratelimit-first-blocked"] == '"calls";scope="ip"'
    assert refused.headers["x-ratelimit-most-restrictive"] == '"calls";scope="global"'
    assert refused.headers["x-ratelimit-scope"] == "ip, global"
    assert api.available("user:u1", "api@user") == {"calls": 9}


def test_a_parent_that_blocks_is_told_without_its_name(api):
    api.limiter.create_entity("org")
    api.limiter.create_entity("u1", parent_id="org", cascade=True)
    api.limiter.set_limits([Limit.per_day("calls", 1)], entity_id="org", resource="api")
    assert api.check().status == 200
    refused = api.check()
    assert refused.status == 429
    assert refused.json["blocked"] == [{"scope": None, "resource": "api", "limit": "calls"}]
    assert "org" not in str(refused.json)


def test_a_disabled_entity_is_refused_for_good(api):
    api.limiter.set_mode("disabled", entity_id="u1")
    for dry_run in (False, True):
        refused = api.check(dry_run=dry_run)
        assert refused.status == 429
        assert refused.json["reason"] == "disabled"
        assert refused.json["retry_after_seconds"] is None
        assert "retry-after" not in refused.headers


def test_names_in_any_script_are_told_and_fit_into_headers(api):
    api.limiter.set_limits([Limit.per_day("calls", 1)], resource="поиск")
    assert api.check("пользователь", "поиск").status == 200
    refused = api.check("пользователь", "поиск")
    assert refused.json["first_blocked"]["resource"] == "поиск"
    assert refused.headers["x-ratelimit-scope"].isascii()


def test_a_status_shows_and_takes_nothing(api):
    api.check(tokens={"calls": 2})
    answer = api.status("u1", "api")
    assert answer.status == 200
    assert answer.json["mode"] == "normal"
    assert [(one["limit"], one["remaining"]) for one in answer.json["limits"]] == [("calls", 1)]
    assert answer.headers["x-ratelimit-remaining"] == "1"
    assert api.available("u1") == {"calls": 1}


def test_a_status_of_what_cannot_be_an_id_is_400(api):
    answer = api.status("a\nb", "api")
    assert answer.status == 400
    assert "entity_id must be" in answer.json["message"]


def test_a_status_of_a_scope(api):
    api.limiter.set_limits([Limit.per_day("calls", 4)], resource="api@user")
    api.limiter.set_limits([Limit.per_day("calls", 9)], resource="api@global")
    assert api.status("u1", "api", scope="user").json["limits"][0]["capacity"] == 4
    assert api.status("global", "api", scope="global").json["limits"][0]["capacity"] == 9
    key = api.status("sk-secret", "api", scope="api_key")
    assert key.status == 400
    assert "does not belong in a URL" in key.json["message"]
    assert "sk-secret" not in key.json["message"]


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ({"resource": "api"}, "identifier is missing"),
        ({"identifier": "u1"}, "resource"),
        ({"identifier": "", "resource": "api"}, 'identifier is ""'),
        ({"identifier": "a#b", "resource": "api"}, 'identifier is "a#b": allowed is'),
        ({"identifier": 7, "resource": "api"}, "identifier is 7: allowed is"),
        ({"identifier": "u1", "resource": "api", "tokens": 0}, "tokens is 0: allowed is"),
        ({"identifier": "u1", "resource": "api", "tokens": -1}, "tokens is -1"),
        ({"identifier": "u1", "resource": "api", "tokens": 1.5}, "tokens is 1.5"),
        ({"identifier": "u1", "resource": "api", "tokens": True}, "tokens is true"),
        ({"identifier": "u1", "resource": "api", "tokens": {}}, "tokens is {}"),
        (
            {"identifier": "u1", "resource": "api", "tokens": 10**13},
            "tokens is 10000000000000",
        ),
        ({"identifier": "u1", "resource": "api", "tokens": {"calls": "1"}}, "tokens is"),
        ({"identifier": "u1", "resource": "api", "tokens": {"rps": 1}}, "'rps'"),
        ({"identifier": "u1", "resource": "api", "tocens": 1}, "tocens"),
        (
            {"identifier": "u1", "resource": "api", "scope": "team"},
            "scope is 'team': the scopes here",
        ),
        ({"identifier": "x", "resource": "api", "scope": "global"}, "the scope 'global' has none"),
        ({"identifier": "1.2.3", "resource": "api", "scope": "ip"}, "'1.2.3': .*IP addresses"),
        ({"identifier": "u1", "resource": "api", "also": [{"scope": "x"}]}, "also.0.scope is 'x'"),
        ({"identifier": "u1", "resource": "api", "also": [{}] * 25}, "also is"),
        ({"identifier": "u1", "resource": "api", "lease_seconds": 0}, "lease_seconds is 0"),
        ({"identifier": "u1", "resource": "nothing"}, "no limits for entity"),
        (
            {"identifier": "u1", "resource": "api", "lease_seconds": 9, "dry_run": True},
            "lease_seconds is 9: a dry run",
        ),
        ([], r"the body must be object: \[\]"),
    ],
)
def test_a_request_that_cannot_be_right_is_400_and_shows_the_value(api, body, says):
    answer = api.send("POST", "/v1/ratelimit/check", json.dumps(body))
    assert answer.status == 400
    assert answer.json["error"] in ("bad_request", "no_limits")
    assert re.search(says, answer.json["message"]), answer.json["message"]
    assert api.available("u1") == {"calls": 3}


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (None, "not JSON"),
        ("", "not JSON"),
        ("{", "not JSON"),
        ('{"tokens": NaN}', "not JSON"),
        ("[" * 100_000, "at most 65536"),
        ("[" * 60_000, "not JSON"),
        ('{"identifier": "\\ud800", "resource": "api"}', "entity_id must be"),
    ],
)
def test_a_body_that_is_none_is_400(api, text, says):
    answer = api.send("POST", "/v1/ratelimit/check", text)
    assert answer.status == 400
    assert says in answer.json["message"]


def test_two_point_zero_is_as_whole_as_two(api):
    answer = api.send(
        "POST", "/v1/ratelimit/check", '{"identifier": "u1", "resource": "api", "tokens": 2.0}'
    )
    assert answer.json["remaining"] == 1


def test_what_is_not_there_is_404(api):
    answer = api.send("GET", "/v2/nothing")
    assert answer.status == 404
    assert answer.json == {"error": "not_found", "message": "there is no GET /v2/nothing"}
