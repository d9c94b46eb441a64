"""An endpoint that is known without the SDK is the one that the SDK would have taken."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import botocore
import pytest

from headgate.drivers import plain

KEYS = {"AWS_ACCESS_KEY_ID": "AKID", "AWS_SECRET_ACCESS_KEY": "secret"}
LAMBDA = KEYS | {
    "AWS_SESSION_TOKEN": "token",
    "AWS_REGION": "eu-west-1",
    "AWS_DEFAULT_REGION": "eu-west-1",
    "AWS_LAMBDA_FUNCTION_NAME": "function",
    "AWS_EXECUTION_ENV": "AWS_Lambda_python3.13",
    "AWS_XRAY_DAEMON_ADDRESS": "169.254.100.1:2000",
}
BUNDLE = str(Path(botocore.__file__).with_name("cacert.pem"))
SETTINGS = {"region_name": None, "endpoint_url": None, "connect_timeout": 1, "read_timeout": 2}

SCRIPT = """
import json, os, sys
from headgate.drivers import plain
from headgate.drivers.wire import resolving

settings = json.loads(sys.argv[1])

def shown(one):
    if one is None:
        return None
    keys = one.credentials.get_frozen_credentials()
    tls = one.tls and [one.tls.check_hostname, int(one.tls.verify_mode), one.tls.cert_store_stats()]
    return [one.host, one.port, one.authority, one.region, one.service, tls,
            keys.access_key, keys.secret_key, keys.token, one.connect_timeout, one.read_timeout]

found = shown(plain.endpoint(settings, os.environ))
assert "botocore" not in sys.modules
import boto3
from botocore.config import Config
assert plain.endpoint(settings, os.environ) is None, "whoever loaded botocore may have changed it"
options = {name: settings.pop(name) for name in ("region_name", "endpoint_url")}
config = Config(parameter_validation=False, retries={"total_max_attempts": 1}, **settings)
client = boto3.Session().client("dynamodb", config=config, **options)
try:
    next(resolving(client, "table"))
except StopIteration as stop:
    print(json.dumps([found, shown(stop.value)]))
"""


def both(environ, **settings):
    ran = subprocess.run(
        [sys.executable, "-c", SCRIPT, json.dumps(SETTINGS | settings)],
        env=environ | {"HOME": "/nonexistent", "PYTHONPATH": "client"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    return json.loads(ran.stdout)


@pytest.mark.parametrize(
    ("environ", "settings"),
    [
        (LAMBDA, {}),
        (LAMBDA, {"region_name": "ap-southeast-2"}),
        (LAMBDA, {"endpoint_url": "http://127.0.0.1:8000"}),
        (LAMBDA | {"AWS_DEFAULT_REGION": "us-east-1"}, {}),
        (KEYS, {"region_name": "sa-east-1"}),
        (LAMBDA | {"AWS_ENDPOINT_URL": "http://localhost:4566"}, {}),
        (LAMBDA | {"AWS_ENDPOINT_URL_DYNAMODB": "https://localhost"}, {}),
        (LAMBDA | {"AWS_ENDPOINT_URL": "http://a", "AWS_ENDPOINT_URL_DYNAMODB": "http://b:1/"}, {}),
        (LAMBDA | {"AWS_ENDPOINT_URL": "http://a"}, {"endpoint_url": "http://b:443"}),
        (LAMBDA | {"AWS_SESSION_TOKEN": ""}, {}),
        (LAMBDA | {"AWS_CA_BUNDLE": BUNDLE}, {}),
        (LAMBDA | {"REQUESTS_CA_BUNDLE": BUNDLE}, {}),
        (LAMBDA | {"AWS_CA_BUNDLE": BUNDLE, "REQUESTS_CA_BUNDLE": "/nonexistent.pem"}, {}),
    ],
)
def test_what_the_environment_says_is_what_the_sdk_finds(environ, settings):
    ours, theirs = both(environ, **settings)
    assert ours is not None
    assert ours == theirs


@pytest.mark.parametrize(
    "more",
    [
        {"AWS_PROFILE": "work"},
        {"AWS_USE_FIPS_ENDPOINT": "true"},
        {"AWS_USE_DUALSTACK_ENDPOINT": "true"},
        {"AWS_CA_BUNDLE": "/nonexistent.pem"},
        {"AWS_ACCOUNT_ID": "123456789012"},
        {"AWS_SOMETHING_NEW": "1"},
        {"REQUESTS_CA_BUNDLE": "/nonexistent.pem"},
        {"HTTPS_PROXY": "http://proxy"},
        {"https_proxy": "http://proxy"},
        {"AWS_DEFAULT_REGION": "us-gov-west-1"},
        {"AWS_DEFAULT_REGION": "cn-north-1"},
        {"AWS_DEFAULT_REGION": "us-iso-east-1"},
        {"AWS_DEFAULT_REGION": ""},
        {"AWS_ACCESS_KEY_ID": ""},
        {"AWS_ENDPOINT_URL": "http://host/path"},
        {"AWS_ENDPOINT_URL": "http://[::1]:8000"},
        {"AWS_CONFIG_FILE": __file__},
        {"AWS_SHARED_CREDENTIALS_FILE": __file__},
    ],
)
def test_what_it_does_not_plainly_say_is_left_to_the_sdk(monkeypatch, more):
    monkeypatch.delitem(sys.modules, "botocore", raising=False)
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setenv("HOME", "/nonexistent")
    assert plain.endpoint(SETTINGS, LAMBDA) is not None
    assert plain.endpoint(SETTINGS, LAMBDA | more) is None


def test_importing_headgate_loads_no_sdk():
    script = "import sys, headgate; print([m for m in sys.modules if m.startswith('boto')])"
    command = [sys.executable, "-c", script]
    ran = subprocess.run(command, capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "[]"
