"""Several checks in one request."""

from headgate import Limit


def one(who, **more):
    return {"identifier": who, "resource": "api", **more}


def test_each_on_its_own(api):
    api.check("u2", tokens={"calls": 3})
    answer = api.post("batch", requests=[one("u1"), one("u2"), one("u3", resource="nothing")])
    assert answer.status == 200
    assert answer.json["allowed"] is False
    assert [result["status"] for result in answer.json["results"]] == [200, 429, 400]
    assert answer.json["results"][0]["answer"]["remaining"] == 2
    assert answer.json["results"][1]["answer"]["first_blocked"]["limit"] == "calls"
    assert answer.json["results"][2]["answer"]["error"] == "no_limits"
    assert api.available("u1") == {"calls": 2}


def test_many_take_one_round_trip(api):
    requests = [one(f"u{n}", tokens={"calls": 1}) for n in range(25)]
    assert api.post("batch", requests=requests).json["allowed"] is True
    batches = []
    perform = api.limiter._driver._perform
    api.limiter._driver._perform = lambda effect: batches.append(effect) or perform(effect)
    assert api.post("batch", requests=requests).json["allowed"] is True
    assert [len(batch) for batch in batches] == [25]


def test_the_same_bucket_twice_is_taken_from_twice(api):
    answer = api.post("batch", requests=[one("u1", tokens={"calls": 2})] * 2)
    assert sorted(result["status"] for result in answer.json["results"]) == [200, 429]
    assert api.available("u1") == {"calls": 1}


def test_all_or_none(api):
    passed = api.post("batch", mode="all", requests=[one("u1"), one("u2")])
    assert passed.status == 200
    assert [limit["remaining"] for limit in passed.json["limits"]] == [2, 2]
    refused = api.post("batch", mode="all", requests=[one("u1"), one("u2", tokens={"calls": 3})])
    assert refused.status == 429
    assert refused.json["allowed"] is False
    assert api.available("u1") == {"calls": 2}


def test_a_dry_run_of_either_takes_nothing(api):
    requests = [one("u1"), one("u2", tokens={"calls": 4}), one("u3", resource="nothing")]
    each = api.post("batch", dry_run=True, requests=requests)
    assert [result["status"] for result in each.json["results"]] == [200, 429, 400]
    every = api.post("batch", dry_run=True, mode="all", requests=requests[:2])
    assert every.status == 429
    assert every.json["dry_run"] is True
    assert api.available("u1") == {"calls": 3}


def test_each_has_a_lease_of_its_own_and_all_have_one(api):
    each = api.post("batch", lease_seconds=60, requests=[one("u1"), one("u2")])
    leases = [result["answer"]["lease"] for result in each.json["results"]]
    assert len(set(leases)) == 2
    every = api.post("batch", mode="all", lease_seconds=60, requests=[one("u1"), one("u2")])
    assert api.post("lease/release", lease=every.json["lease"]).json["done"] is True
    assert api.available("u1") == api.available("u2") == {"calls": 2}


def test_the_size_is_bounded(api):
    too_many = api.post("batch", requests=[one("u1")] * 26)
    assert too_many.status == 400
    assert "requests is [" in too_many.json["message"]
    assert api.post("batch", requests=[]).status == 400
    api.limiter.set_limits([Limit.per_day("calls", 3)], resource="api@user")
    wide = one("u1", also=[{"scope": "user", "identifier": f"v{n}"} for n in range(13)])
    answer = api.post("batch", requests=[wide, wide])
    assert answer.status == 400
    assert "28 buckets in all: at most 25" in answer.json["message"]
    assert api.available("u1") == {"calls": 3}
