"""The table goes away and comes back: what the policy says, and what health tells."""

from headgate import AccessDenied, Limit
from headgate.effects import Refused, Throttled


def opened(api):
    """As many failures as it takes, and what the breaker answers then."""
    for _ in range(6):
        answer = api.check(tokens={"calls": 1})
    return answer


def test_with_block_checks_are_503_and_health_is_unhealthy(make_api):
    api = make_api(on_unavailable="block")
    assert api.health().json == {"status": "healthy", "breaker": "closed", "reason": None}
    assert api.check().status == 200
    api.adapter.cut()
    answer = opened(api)
    assert answer.status == 503
    assert answer.json["error"] == "unavailable"
    assert answer.headers["retry-after"] == "1"
    assert answer.headers["x-ratelimit-degraded"] == "true"
    assert answer.headers["x-ratelimit-degraded-reason"] == "the breaker is open"
    health = api.health()
    assert health.status == 503
    assert (health.json["status"], health.json["breaker"]) == ("unhealthy", "open")


def test_with_allow_checks_pass_and_say_that_nothing_was_metered(make_api):
    api = make_api(on_unavailable="allow")
    assert api.check().status == 200
    api.adapter.cut()
    answer = opened(api)
    assert answer.status == 200
    assert (answer.json["allowed"], answer.json["degraded"]) == (True, True)
    assert answer.json["reason"] == "the breaker is open"
    assert answer.json["remaining"] is None
    assert answer.headers["x-ratelimit-degraded"] == "true"
    health = api.health()
    assert (health.status, health.json["status"]) == (200, "degraded")


def test_the_stored_policy_is_what_health_goes_by(make_api):
    api = make_api()
    api.limiter.set_limits([Limit.per_day("calls", 9)], on_unavailable="allow")
    assert api.check().status == 200
    api.adapter.cut()
    assert opened(api).json["degraded"] is True
    assert api.health().json["status"] == "degraded"


def test_it_heals_by_way_of_half_open(make_api):
    api = make_api(on_unavailable="block")
    assert api.check().status == 200
    api.adapter.cut()
    opened(api)
    api.adapter.mend()
    assert api.check().status == 503  # the breaker waits
    api.backend.time.advance(11)
    assert api.check(tokens={"calls": 1}).status == 200
    trial = api.health()
    assert trial.json["status"] in ("healthy", "degraded")
    assert api.health().json == {"status": "healthy", "breaker": "closed", "reason": None}


def test_a_number_of_tokens_passes_in_an_outage_too(make_api):
    """What a number stands for is in the table, which cannot be asked."""
    api = make_api(on_unavailable="allow")
    api.adapter.cut()
    answer = api.check("never-seen", tokens=1)
    assert (answer.status, answer.json["degraded"]) == (200, True)


def test_no_lease_is_given_out_for_what_was_not_taken(make_api):
    api = make_api(on_unavailable="allow")
    api.adapter.cut()
    answer = api.check(lease_seconds=60)
    assert answer.status == 200
    assert answer.json["lease"] is None


def test_a_batch_in_an_outage_says_so_for_each(make_api):
    api = make_api(on_unavailable="block")
    api.adapter.cut()
    requests = [{"identifier": who, "resource": "api"} for who in ("u1", "u2")]
    answer = api.post("batch", requests=requests)
    assert answer.status == 200
    assert [result["status"] for result in answer.json["results"]] == [503, 503]


def test_a_dry_run_of_many_waits_for_the_table_once(make_api):
    api = make_api()
    api.adapter.cut()
    requests = [{"identifier": f"u{n}", "resource": "api"} for n in range(25)]
    with api.adapter.sending() as sent:
        answer = api.post("batch", requests=requests, dry_run=True)
    assert {result["status"] for result in answer.json["results"]} == {503}
    assert len(sent) == 2  # a request, and its repetition


def test_a_lease_is_settled_when_the_table_is_back(make_api):
    api = make_api(on_unavailable="block")
    lease = api.check(tokens={"calls": 2}, lease_seconds=600).json["lease"]
    api.adapter.cut()
    assert api.post("lease/release", lease=lease).status == 503
    api.adapter.mend()
    answer = api.post("lease/release", lease=lease)
    assert (answer.status, answer.json["done"]) == (200, True)
    assert api.available("u1") == {"calls": 3}


def test_a_table_that_refuses_is_503_without_details(api):
    denied = AccessDenied("arn:aws:iam::111122223333:role/secret-role may not")
    api.adapter.wire = lambda call, send: Refused(denied)
    answer = api.check()
    assert answer.status == 503
    assert answer.json["error"] == "misconfigured"
    assert "AccessDenied" in answer.json["message"]
    assert "secret-role" not in answer.json["message"]
    health = api.health()
    assert (health.status, health.json["reason"]) == (503, "AccessDenied")


def test_contention_is_429_and_says_when(api):
    assert api.check().status == 200
    api.adapter.wire = lambda call, send: Throttled("too much", of_key=False)
    answer = api.check("u1", tokens={"calls": 1})
    assert answer.status == 429
    assert answer.json["reason"] == "contended"
    assert answer.json["first_blocked"]["limit"] is None
    assert answer.headers["retry-after"] == "1"
