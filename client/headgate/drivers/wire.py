"""DynamoDB's protocol without the SDK's machinery: one kind of request, signed, and its answer.

botocore decides where a request goes, with which credentials and under which certificates: it is
asked for one request, and what it was about to send is the pattern for all. No I/O here.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import ssl
import time
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from headgate.bucket import Milliseconds
from headgate.drivers.outcomes import from_error, from_exception
from headgate.effects import Answer, Call, Outcome

PREFIX = "DynamoDB_20120810."
CONTENT_TYPE = "application/x-amz-json-1.0"
_ALGORITHM = "AWS4-HMAC-SHA256"


class _Unsent(Exception):
    """Carries a request out of botocore at the moment it would have been sent."""

    def __init__(self, request: Any) -> None:
        self.request = request


@dataclass(slots=True)
class Endpoint:
    """Where to connect, and what every request there begins with."""

    host: str
    port: int
    tls: ssl.SSLContext | None
    authority: str
    region: str
    service: str
    agent: str
    credentials: Any
    connect_timeout: float
    read_timeout: float
    listeners: Any = None  # botocore's events, if anybody wants to see requests (as moto does)
    _key: tuple[str, str, bytes] = ("", "", b"")  # of which secret and day; replaced as a whole

    def request(self, call: Call, credentials: Any, now: Milliseconds) -> bytes:
        """The bytes to send for a call."""
        body = _encode(call.params).encode()
        target = PREFIX + call.operation
        stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(now // 1000))
        token = credentials.token
        held = f"x-amz-security-token:{token}\n" if token else ""
        signed = "content-type;host;x-amz-date;x-amz-security-token;x-amz-target"
        if not token:
            signed = "content-type;host;x-amz-date;x-amz-target"
        headers = (
            f"content-type:{CONTENT_TYPE}\nhost:{self.authority}\nx-amz-date:{stamp}\n"
            f"{held}x-amz-target:{target}\n"
        )
        canonical = f"POST\n/\n\n{headers}\n{signed}\n{hashlib.sha256(body).hexdigest()}"
        scope = f"{stamp[:8]}/{self.region}/{self.service}/aws4_request"
        digest = hashlib.sha256(canonical.encode()).hexdigest()
        text = f"{_ALGORITHM}\n{stamp}\n{scope}\n{digest}"
        key = self._signing_key(credentials.secret_key, stamp[:8])
        signature = hmac.digest(key, text.encode(), "sha256").hex()
        head = (
            f"POST / HTTP/1.1\r\n{headers.replace(chr(10), chr(13) + chr(10))}"
            f"authorization:{_ALGORITHM} Credential={credentials.access_key}/{scope}, "
            f"SignedHeaders={signed}, Signature={signature}\r\n"
            f"user-agent:{self.agent}\r\naccept-encoding:identity\r\n"
            f"content-length:{len(body)}\r\n\r\n"
        )
        return head.encode() + body

    def announced(self, call: Call, request: bytes) -> dict[str, Any]:
        """A request as botocore's event shows it; a listener may answer it."""
        from botocore.awsrequest import AWSPreparedRequest, HeadersDict  # noqa: PLC0415

        head, _, body = request.partition(b"\r\n\r\n")
        lines = (line.partition(":") for line in head.decode().split("\r\n")[1:])
        headers: Any = HeadersDict({name: value for name, _, value in lines})
        url = f"http{'s' if self.tls else ''}://{self.authority}/"
        return {
            "event_name": f"before-send.dynamodb.{call.operation}",
            "request": AWSPreparedRequest("POST", url, headers, body, stream_output=False),
        }

    def _signing_key(self, secret: str, day: str) -> bytes:
        known = self._key
        if known[0] == secret and known[1] == day:
            return known[2]
        key = f"AWS4{secret}".encode()
        for part in (day, self.region, self.service, "aws4_request"):
            key = hmac.digest(key, part.encode(), "sha256")
        self._key = secret, day, key
        return key


def resolving(client: Any, table: str) -> Generator[Any, Any, Endpoint | None]:
    """Asks botocore for one request and does not send it. Yields what a caller may have to await.

    None where botocore has to send by itself: through a proxy, with another kind of signature or
    to another path.
    """
    try:
        http, config = client._endpoint.http_session, client.meta.config  # noqa: SLF001
        verify, proxies = http._verify, http._proxy_config  # noqa: SLF001
        certificate = http._cert_file, http._key_file  # noqa: SLF001
        credentials = client._request_signer._credentials  # noqa: SLF001
        listening = client.meta.events._emitter._handlers.prefix_search(  # noqa: SLF001
            "before-send.dynamodb.UpdateItem"
        )
    except AttributeError:
        # Another version of the SDK, or something that only looks like its client.
        return None

    def stop(request: Any, **_: Any) -> None:
        raise _Unsent(request)

    client.meta.events.register("before-send.dynamodb.GetItem", stop)
    try:
        yield client.get_item(TableName=table, Key={"PK": {"S": "-"}, "SK": {"S": "-"}})
    except _Unsent as unsent:
        request = unsent.request
    else:
        return None
    finally:
        client.meta.events.unregister("before-send.dynamodb.GetItem", stop)
    url, signature = urlsplit(request.url), _text(request.headers.get("Authorization"))
    if not signature.startswith(_ALGORITHM + " ") or proxies.proxy_url_for(request.url):
        return None
    if url.path not in ("", "/") or url.query or url.hostname is None:
        return None
    _, _, region, service, _ = signature.partition("Credential=")[2].partition(",")[0].split("/")
    secure = url.scheme == "https"
    standard = 443 if secure else 80
    port = url.port or standard
    host = f"[{url.hostname}]" if ":" in url.hostname else url.hostname
    return Endpoint(
        host=url.hostname,
        port=port,
        tls=_tls(verify, *certificate) if secure else None,
        authority=host if port == standard else f"{host}:{port}",
        region=region,
        service=service,
        agent=_text(request.headers.get("User-Agent")),
        credentials=credentials,
        connect_timeout=config.connect_timeout,
        read_timeout=config.read_timeout,
        listeners=client.meta.events if listening else None,
    )


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value or "")


def _tls(verify: Any, cert_file: str | None, key_file: str | None) -> ssl.SSLContext:
    from botocore.httpsession import create_urllib3_context, get_cert_path  # noqa: PLC0415

    context: ssl.SSLContext = create_urllib3_context()
    if verify:
        context.check_hostname = True
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(get_cert_path(verify))
    else:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if cert_file:
        context.load_cert_chain(cert_file, key_file)
    return context


def _blob(value: object) -> str:
    if isinstance(value, bytes | bytearray):
        return base64.b64encode(value).decode()
    raise TypeError(f"not a value that DynamoDB takes: {value!r}")


_encode = json.JSONEncoder(separators=(",", ":"), default=_blob, check_circular=False).encode


class Reply(NamedTuple):
    """One whole answer. `keep` says that its connection can be used again."""

    status: int
    headers: dict[str, str]
    body: bytes
    keep: bool

    def outcome(self, table: str) -> Outcome:
        """What it says of the request's fate."""
        try:
            content = json.loads(self.body or b"{}")
        except ValueError:
            content = {"message": self.body[:200].decode(errors="replace")}
            if self.status < 300:
                return from_exception(ConnectionError("the answer is not JSON"), table)
        if self.status < 300:
            return Answer(content)
        code = str(content.get("__type", "")).rpartition("#")[2]
        message = content.get("message", content.get("Message", ""))
        error: Any = {
            **content,
            "Error": {"Code": code or str(self.status), "Message": message},
            "ResponseMetadata": {"HTTPStatusCode": self.status},
        }
        return from_error(error, table)


def answered(said: Sequence[Any]) -> Reply | None:
    """The answer of a listener in the server's place, if there is one."""
    for answer in said:
        if answer is not None:
            headers = {name.lower(): value for name, value in answer.headers.items()}
            return Reply(answer.status_code, headers, answer.content, keep=True)
    return None


class Inbox:
    """Bytes of one connection as they come; a reply once it is whole."""

    def __init__(self) -> None:
        self._data = b""

    def feed(self, data: bytes) -> Reply | None:
        """Takes in what arrived; nothing means that the other side closed."""
        self._data = self._data + data if self._data else data
        end = self._data.find(b"\r\n\r\n")
        if end < 0:
            if not data:
                raise ConnectionResetError("the connection was closed before an answer came")
            return None
        first, *lines = self._data[:end].decode("latin-1").split("\r\n")
        headers = {}
        for line in lines:
            name, _, value = line.partition(":")
            headers[name.lower()] = value.strip()
        body = self._body(headers, self._data[end + 4 :], closed=not data)
        if body is None:
            if not data:
                raise ConnectionResetError("the connection was closed amid the answer")
            return None
        self._data = b""
        keep = bool(data) and headers.get("connection", "").lower() != "close"
        return Reply(int(first.split(" ", 2)[1]), headers, body, keep and "HTTP/1.1" in first)

    @staticmethod
    def _body(headers: dict[str, str], rest: bytes, *, closed: bool) -> bytes | None:
        if "content-length" in headers:
            length = int(headers["content-length"])
            return rest[:length] if len(rest) >= length else None
        if "chunked" not in headers.get("transfer-encoding", ""):
            return rest if closed else None
        whole = b""
        while True:
            line, found, rest = rest.partition(b"\r\n")
            size = int(line.partition(b";")[0], 16) if found else -1
            if size < 0 or len(rest) < size + 2:
                return None
            if not size:
                return whole
            whole, rest = whole + rest[:size], rest[size + 2 :]
