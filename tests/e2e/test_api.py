"""Deployed: the limiter over HTTP, through the emulator's gateway, with the real layer."""

from __future__ import annotations

import json
import os
import re
import subprocess
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import pytest
import requests
import schemathesis
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from hypothesis import HealthCheck, Phase, settings
from schemathesis.specs.openapi.checks import positive_data_acceptance, unsupported_method

import deploy
import engine
import serve
from headgate import Limit, SyncRateLimiter
from tests.docs.examples import ROOT

SECONDS = float(os.environ.get("HEADGATE_LOAD_SECONDS", "30"))
EXAMPLES = int(os.environ.get("HEADGATE_CONTRACT_EXAMPLES", "40"))
CALLERS = 4
CAPACITY, RATE = 20, 2


@pytest.fixture(scope="module")
def deployed(account):
    outputs = deploy.deploy(account, serve.STACK)["Limits"]
    yield outputs
    deploy.destroy(account, serve.STACK)


@pytest.fixture(scope="module")
def url(account, deployed):
    return serve.address(account, deployed["ApiId"])


class Signed(requests.auth.AuthBase):
    """Signs requests as those of AWS are signed."""

    def __call__(self, request):
        signed = AWSRequest(request.method, request.url, data=request.body or b"")
        SigV4Auth(Credentials("testing", "testing"), "execute-api", engine.REGION).add_auth(signed)
        request.headers.update(dict(signed.headers))
        return request


class Http:
    """A client of the API. Connections are kept, by each thread its own."""

    def __init__(self, base):
        self._base = base
        self._local = threading.local()

    @property
    def session(self):
        if not hasattr(self._local, "session"):
            self._local.session = requests.Session()
            self._local.session.auth = Signed()
        return self._local.session

    def post(self, path, body):
        return self.session.post(self._base + path, json=body, timeout=60)

    def get(self, path):
        return self.session.get(self._base + path, timeout=60)


@pytest.fixture(scope="module")
def http(url):
    return Http(url)


@pytest.fixture(scope="module")
def limiter(account, deployed):
    with SyncRateLimiter(deployed["Table"], endpoint_url=account, read_timeout=10) as made:
        yield made


def check(http, **body):
    return http.post("/v1/ratelimit/check", body)


@pytest.mark.timeout(120)
def test_a_deployed_check_limits_and_a_lease_is_given_back(http, limiter):
    body = {"identifier": "e2e-1", "resource": "search"}
    answers = [check(http, **body) for _ in range(6)]
    assert [answer.status_code for answer in answers] == [200] * 5 + [429]
    refused = answers[-1]
    assert int(refused.headers["retry-after"]) > 0
    assert refused.headers["x-ratelimit-remaining"] == "0"
    assert refused.json()["first_blocked"]["limit"] == "calls"

    leased = check(
        http, identifier="e2e-1", resource="chat", tokens={"tokens": 500}, lease_seconds=60
    )
    lease = leased.json()["lease"]
    for done in (True, False):
        given_back = http.post("/v1/ratelimit/lease/release", {"lease": lease})
        assert given_back.json()["done"] is done, given_back.text
    assert limiter.available("e2e-1", "chat")["tokens"] == 10_000


def test_who_does_not_sign_is_turned_away_before_the_function(url):
    answer = requests.post(f"{url}/v1/ratelimit/check", json={}, timeout=60)
    assert answer.status_code == 403


def test_status_and_health_answer(http):
    assert http.get("/v1/ratelimit/status/somebody/search").json()["limits"][0]["remaining"] == 5
    odd = http.get("/v1/ratelimit/status/a%20b%C3%A9/search")
    assert odd.status_code == 200, odd.text
    assert http.get("/health").json() == {"status": "healthy", "breaker": "closed", "reason": None}


@pytest.mark.parametrize("page", ["README.md", "docs/guide/api.md"])
def test_the_commands_of_the_documentation_answer(page, url):
    blocks = re.findall(r"^```sh\n(.*?)^```$", (ROOT / page).read_text(), re.MULTILINE | re.DOTALL)
    calls = "".join(blocks).replace("curl -s", "curl -s -w '\\n'")
    ran = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", calls],
        env={**os.environ, **serve.settings(url)},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert ran.returncode == 0, ran.stderr
    answers = [json.loads(line) for line in ran.stdout.splitlines() if line.strip()]
    asked = len(re.findall(r"^ask ", calls, re.MULTILINE))
    assert len(answers) == asked > 0, ran.stdout
    assert [one for one in answers if "error" in one or "message" in one] == []
    if page == "README.md":
        assert [one.get("remaining") for one in answers[:2]] == [4, 9]
        assert answers[-1] == {"status": "healthy", "breaker": "closed", "reason": None}


# Every request of this test is signed; what becomes of others is tested above.
DOCUMENT = {**json.loads((ROOT / "docs/openapi.json").read_text()), "security": []}
schema = schemathesis.openapi.from_dict(DOCUMENT)


@pytest.mark.timeout(300)
@schema.parametrize()
@settings(
    max_examples=EXAMPLES,
    deadline=None,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
)
def test_whatever_is_sent_the_answer_is_as_the_document_says(case, http, url):
    case.call_and_validate(
        base_url=url,
        session=http.session,
        # Requests that fit may ask for limits that nobody has set, or for more than is there;
        # and the gateway answers methods that it has no route for itself.
        excluded_checks=[positive_data_acceptance, unsupported_method],
        timeout=60,
    )


@pytest.mark.timeout(120)
def test_under_load_no_more_is_admitted_than_the_bound_and_nothing_fails(http, limiter):
    limiter.set_limits([Limit.per_second("calls", RATE, burst=CAPACITY)], resource="load")
    began = time.monotonic()
    end = began + SECONDS

    def call(_caller):
        seen = Counter()
        while time.monotonic() < end:
            answer = check(http, identifier="everybody", resource="load", tokens={"calls": 1})
            seen[answer.status_code] += 1
        return seen

    with ThreadPoolExecutor(CALLERS) as pool:
        seen = sum(pool.map(call, range(CALLERS)), Counter())
    elapsed = time.monotonic() - began
    assert set(seen) <= {200, 429}, seen
    bound = CAPACITY + RATE * (elapsed + 1)
    assert seen[200] <= bound, (seen, bound)
    # It was a load: more was asked for than there was.
    assert seen[429] > 0, seen
    assert seen[200] >= CAPACITY, seen
