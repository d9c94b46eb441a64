"""The endpoint of a function's usual environment, known without loading the SDK.

Loading botocore and making its client takes longer than all else that a new process does before
its first acquire. Where credentials, region and endpoint are plainly in the environment, as they
are in Lambda, botocore would find what is found here. Anything that it might read differently,
an unknown variable included, is left to it.
"""

from __future__ import annotations

import re
import ssl
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from headgate.drivers.wire import Endpoint

# Variables of AWS that have no say in where and how DynamoDB is reached, or are heard here.
_KNOWN = frozenset(
    "AWS_ACCESS_KEY_ID AWS_SECRET_ACCESS_KEY AWS_SESSION_TOKEN AWS_REGION AWS_DEFAULT_REGION "
    "AWS_EXECUTION_ENV AWS_CONFIG_FILE AWS_SHARED_CREDENTIALS_FILE AWS_EC2_METADATA_DISABLED "
    "AWS_ENDPOINT_URL AWS_ENDPOINT_URL_DYNAMODB AWS_CA_BUNDLE AWS_SAM_LOCAL".split()
)
_HARMLESS = ("AWS_LAMBDA_", "AWS_XRAY_")
# The regions of the commercial partition: three parts, which those of the others do not have.
_REGION = re.compile(r"(af|ap|ca|eu|il|me|mx|sa|us)-[a-z]+-\d")


@dataclass(frozen=True, slots=True)
class _Credentials:
    access_key: str
    secret_key: str
    token: str | None

    def get_frozen_credentials(self) -> _Credentials:
        return self


def endpoint(settings: Mapping[str, Any], environ: Mapping[str, str]) -> Endpoint | None:
    """The endpoint, or None if only the SDK can tell. `settings` are those of its client."""
    if not _plain(environ):
        return None
    region = settings.get("region_name") or environ.get("AWS_DEFAULT_REGION", "")
    if not _REGION.fullmatch(region):
        return None
    given = (
        settings.get("endpoint_url")
        or environ.get("AWS_ENDPOINT_URL_DYNAMODB")
        or environ.get("AWS_ENDPOINT_URL")
    )
    url = urlsplit(given or f"https://dynamodb.{region}.amazonaws.com")
    if url.scheme not in ("http", "https") or not url.hostname or url.username or url.query:
        return None
    if url.path not in ("", "/") or ":" in url.hostname:
        return None
    standard = 443 if url.scheme == "https" else 80
    port = url.port or standard
    return Endpoint(
        host=url.hostname,
        port=port,
        tls=_tls(_bundle(environ)) if url.scheme == "https" else None,
        authority=url.hostname if port == standard else f"{url.hostname}:{port}",
        region=region,
        service="dynamodb",
        agent=f"headgate lang/python#{sys.version_info.major}.{sys.version_info.minor}",
        credentials=_Credentials(
            environ["AWS_ACCESS_KEY_ID"],
            environ["AWS_SECRET_ACCESS_KEY"],
            environ.get("AWS_SESSION_TOKEN") or None,
        ),
        connect_timeout=settings["connect_timeout"],
        read_timeout=settings["read_timeout"],
    )


def _plain(environ: Mapping[str, str]) -> bool:
    # Whoever has loaded botocore may have changed what it does, as moto does.
    if "botocore" in sys.modules or sys.platform != "linux":
        return False
    if not environ.get("AWS_ACCESS_KEY_ID") or not environ.get("AWS_SECRET_ACCESS_KEY"):
        return False
    for name in environ:
        if name.startswith("AWS_") and name not in _KNOWN and not name.startswith(_HARMLESS):
            return False
        if name.lower().endswith("_proxy") and name.lower() != "no_proxy":
            return False
    bundle = _bundle(environ)
    if bundle is not None and not Path(bundle).is_file():
        return False
    return not any(
        Path(environ.get(variable) or default).expanduser().is_file()
        for variable, default in (
            ("AWS_CONFIG_FILE", "~/.aws/config"),
            ("AWS_SHARED_CREDENTIALS_FILE", "~/.aws/credentials"),
        )
    )


def _bundle(environ: Mapping[str, str]) -> str | None:
    return environ.get("AWS_CA_BUNDLE", environ.get("REQUESTS_CA_BUNDLE"))


def _tls(bundle: str | None) -> ssl.SSLContext:
    """With the authorities that botocore trusts: those given, or certifi's, or else its own."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if bundle:
        context.load_verify_locations(bundle)
        return context
    if find_spec("certifi"):
        import certifi  # noqa: PLC0415 - botocore does not need it either

        context.load_verify_locations(certifi.where())
        return context
    found = find_spec("botocore")
    assert found is not None
    assert found.origin is not None
    context.load_verify_locations(Path(found.origin).with_name("cacert.pem"))
    return context
