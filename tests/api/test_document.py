"""The document that is checked in says what the function does."""

import json
import re

import jsonschema
import pytest

from api import document, handler, schemas
from engine import ROOT


def published():
    return json.loads((ROOT / "docs/openapi.json").read_text())


def test_the_document_is_the_one_that_the_schemas_make():
    """If this fails: PYTHONPATH=client:lambdas python -m api.document > docs/openapi.json"""
    assert (ROOT / "docs/openapi.json").read_text() == document.text()


def test_the_function_the_document_and_the_construct_have_the_same_operations():
    described = {(method.upper(), path) for path, item in document.PATHS.items() for method in item}
    source = (ROOT / "constructs/headgate_cdk/api.py").read_text()
    routed = set(re.findall(r'\("(GET|POST)", "([^"]+)"\)', source))
    assert routed == described
    rules = [(route.method, route.path) for route in handler.app._static_routes]
    rules += [(route.method, route.path) for route in handler.app._dynamic_routes]
    known = {
        (method, path.replace(r"[\s\S]+", "{identifier}/{resource}")) for method, path in rules
    }
    assert known == described


@pytest.mark.parametrize("name", sorted(schemas.COMPONENTS))
def test_every_schema_is_one(name):
    jsonschema.Draft202012Validator.check_schema(schemas.COMPONENTS[name])


@pytest.mark.parametrize("name", ["IDENTIFIER", "RESOURCE", "SCOPE", "TOKENS", "DIFFERENCES"])
def test_examples_are_valid(name):
    schema = getattr(schemas, name)
    for example in schema["examples"]:
        jsonschema.validate(example, schema)


def conforming(answer, path, method="post"):
    responses = published()["paths"][path][method]["responses"]
    schema = responses[str(answer.status)]["content"]["application/json"]["schema"]
    jsonschema.validate(answer.json, {**schema, "components": published()["components"]})
    told = {name.lower() for name in responses[str(answer.status)].get("headers", {})}
    assert {name for name in answer.headers if "rate" in name or "retry" in name} <= told


def test_answers_are_as_described(api):
    lease = api.check(lease_seconds=60)
    conforming(lease, "/v1/ratelimit/check")
    conforming(api.check(tokens=3), "/v1/ratelimit/check")
    conforming(api.check(tokens=0), "/v1/ratelimit/check")
    conforming(api.check(tokens=9, dry_run=True), "/v1/ratelimit/check")
    requests = [{"identifier": "u1", "resource": name} for name in ("api", "nothing")]
    conforming(api.post("batch", requests=requests), "/v1/ratelimit/batch")
    conforming(api.post("batch", requests=requests[:1], mode="all"), "/v1/ratelimit/batch")
    body = {"lease": lease.json["lease"], "tokens": {"calls": 1}}
    conforming(api.post("lease/adjust", **body), "/v1/ratelimit/lease/adjust")
    conforming(api.post("lease/release", lease="x"), "/v1/ratelimit/lease/release")
    path = "/v1/ratelimit/status/{identifier}/{resource}"
    conforming(api.status("u1", "api"), path, "get")
    conforming(api.status("u1", "nothing"), path, "get")
    conforming(api.health(), "/health", "get")
    api.adapter.cut()
    conforming(api.check(tokens={"calls": 1}), "/v1/ratelimit/check")
    conforming(api.health(), "/health", "get")
