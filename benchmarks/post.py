"""Requests to an engine without any SDK: one connection, DynamoDB's JSON."""

from __future__ import annotations

import http.client
import json
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

_HEADERS = {
    "Content-Type": "application/x-amz-json-1.0",
    "Authorization": (
        "AWS4-HMAC-SHA256 Credential=testing/20260101/us-east-1/dynamodb/aws4_request, "
        "SignedHeaders=host, Signature=0"
    ),
}


class Post:
    """For one thread at a time. The connection is kept; one that was closed is made anew."""

    def __init__(self, url: str) -> None:
        self._connection = http.client.HTTPConnection(urlsplit(url).netloc)

    def send(self, headers: Mapping[str, str], data: bytes) -> tuple[int, bytes, str]:
        """Status, body and content type of the answer."""
        fresh = self._connection.sock is None
        try:
            return self._once(headers, data)
        except (http.client.RemoteDisconnected, ConnectionError):
            self._connection.close()
            if fresh:
                raise
            return self._once(headers, data)

    def ask(self, operation: str, params: Mapping[str, Any]) -> dict[str, Any]:
        """What the engine says to this operation of DynamoDB."""
        headers = {**_HEADERS, "X-Amz-Target": f"DynamoDB_20120810.{operation}"}
        status, body, _ = self.send(headers, json.dumps(params).encode())
        if status >= 300:
            raise RuntimeError(f"{operation}: {body.decode(errors='replace')[:300]}")
        return dict(json.loads(body))

    def close(self) -> None:
        """Lets go of the connection."""
        self._connection.close()

    def _once(self, headers: Mapping[str, str], data: bytes) -> tuple[int, bytes, str]:
        self._connection.request("POST", "/", data, dict(headers))
        response = self._connection.getresponse()
        body = response.read()
        return response.status, body, response.headers.get("Content-Type", "")
