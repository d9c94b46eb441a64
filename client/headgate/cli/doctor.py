"""`headgate doctor`: is everything there, is it as it should be, and what is to be done if not."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from email.utils import parsedate_to_datetime
from typing import Any, Literal

import typer
from rich.text import Text

from headgate.cli import output
from headgate.cli.session import Session, session
from headgate.errors import HeadgateError
from headgate.schema import key, table_definition

Verdict = Literal["ok", "warn", "fail"]
_STYLES = {"ok": "green", "warn": "yellow", "fail": "bold red"}
_MOST_SKEW = 0.5  # seconds: more than this shows in how exact limits are


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at."""

    what: str
    verdict: Verdict
    found: str
    advice: str = ""


def doctor(context: typer.Context) -> None:
    """Look at the table, its indexes, expiry, stream, functions, at clock and permissions.

    Exits with 1 if something is wrong. What only takes something away is a warning.
    """
    run = session(context)
    with run.notes.status("looking"):
        findings = list(Examination(run).findings())
    table = output.grid(None, "", "what", "found")
    table.columns[2].no_wrap = False
    for finding in findings:
        told = Text(finding.found)
        if finding.advice:
            told.append(f"\n→ {finding.advice}", style="italic")
        table.add_row(Text(finding.verdict, style=_STYLES[finding.verdict]), finding.what, told)
    run.show([asdict(finding) for finding in findings], table)
    if any(finding.verdict == "fail" for finding in findings):
        raise typer.Exit(1)


class Examination:
    """Looks, and touches nothing."""

    def __init__(self, run: Session) -> None:
        import boto3  # noqa: PLC0415 - slow to load
        from botocore.config import Config  # noqa: PLC0415

        self.run = run
        self.name = run.limiter._core.table  # noqa: SLF001 - ours
        settings = Config(
            connect_timeout=3,
            read_timeout=10,
            retries={"total_max_attempts": 2, "mode": "standard"},
        )
        options: dict[str, Any] = {"config": settings, "region_name": run.region}
        self._make: Callable[[str], Any] = lambda service: boto3.client(  # type: ignore[call-overload]
            service, endpoint_url=run.endpoint_url, **options
        )
        self.dynamodb = self._make("dynamodb")

    def findings(self) -> Iterator[Finding]:
        from botocore.exceptions import BotoCoreError, ClientError  # noqa: PLC0415

        try:
            table = self.dynamodb.describe_table(TableName=self.name)["Table"]
        except ClientError as error:
            yield _trouble("table", error, "is the name right, and the region, and the account?")
            return
        except BotoCoreError as error:
            yield Finding(
                "table", "fail", str(error), "is there a network, and are there credentials?"
            )
            return
        yield from self._table(table)
        for look in (self._expiry, self._functions):
            try:
                yield from look(table)
            except (ClientError, BotoCoreError) as error:
                yield _trouble(look.__name__[1:], error, "not allowed to look: ask whoever is")
        yield from self._clock()
        yield from self._permissions()
        yield from self._namespace()

    def _table(self, table: dict[str, Any]) -> Iterator[Finding]:
        wanted = table_definition(self.name)
        good = table["TableStatus"] == "ACTIVE"
        billing = table.get("BillingModeSummary", {}).get("BillingMode", "PROVISIONED")
        yield Finding("table", "ok" if good else "fail", f"{self.name}: {table['TableStatus']}")
        if billing != "PAY_PER_REQUEST":
            yield Finding(
                "billing", "warn", billing, "on demand takes bursts; provisioned capacity throttles"
            )
        keys = _keys(table["KeySchema"])
        if keys != _keys(wanted["KeySchema"]):
            yield Finding("keys", "fail", keys, "this is not a Headgate table")
        there = {index["IndexName"]: index for index in table.get("GlobalSecondaryIndexes", ())}
        for index in wanted["GlobalSecondaryIndexes"]:
            yield _index(index, there.get(index["IndexName"]))
        stream = table.get("StreamSpecification", {})
        if stream.get("StreamViewType") == "NEW_AND_OLD_IMAGES":
            yield Finding("stream", "ok", "new and old images")
        else:
            yield Finding(
                "stream",
                "fail",
                stream.get("StreamViewType", "off"),
                "without it there is no usage and no archive: deploy the construct, or turn it on "
                "with NEW_AND_OLD_IMAGES",
            )

    def _expiry(self, _: dict[str, Any]) -> Iterator[Finding]:
        told = self.dynamodb.describe_time_to_live(TableName=self.name)["TimeToLiveDescription"]
        good = told.get("TimeToLiveStatus") in {"ENABLED", "ENABLING"}
        if good and told.get("AttributeName") == "ttl":
            yield Finding("expiry", "ok", "by the attribute ttl")
        else:
            yield Finding(
                "expiry",
                "fail",
                told.get("TimeToLiveStatus", "DISABLED").lower(),
                "idle buckets and audit events stay for ever: turn TTL on for the attribute ttl",
            )

    def _functions(self, table: dict[str, Any]) -> Iterator[Finding]:
        stream = table.get("LatestStreamArn")
        if stream is None:
            return
        client = self._make("lambda")
        mappings = client.list_event_source_mappings(EventSourceArn=stream)["EventSourceMappings"]
        if not mappings:
            yield Finding(
                "functions",
                "warn",
                "nothing reads the stream",
                "usage is not counted, shards are not merged, expired events not archived: deploy "
                "the construct",
            )
        for mapping in mappings:
            name = mapping["FunctionArn"].rsplit(":function:", 1)[-1]
            state, last = mapping.get("State", "?"), mapping.get("LastProcessingResult", "")
            good = state == "Enabled" and not str(last).startswith("PROBLEM")
            yield Finding(
                "functions",
                "ok" if good else "fail",
                f"{name}: {state.lower()}{f', {last}' if last else ''}",
                "" if good else "see its log and the queue of what it could not process",
            )

    def _clock(self) -> Iterator[Finding]:
        before = time.time()
        answer = self.dynamodb.describe_table(TableName=self.name)
        after = time.time()
        date = answer["ResponseMetadata"]["HTTPHeaders"].get("date")
        if not date:
            yield Finding("clock", "warn", "the server does not say what time it is")
            return
        # The header has whole seconds: the true time is in the second that begins with it.
        server = parsedate_to_datetime(date).timestamp()
        off = max(0.0, before - (server + 1)) - max(0.0, server - after)
        good = abs(off) <= _MOST_SKEW
        yield Finding(
            "clock",
            "ok" if good else "warn",
            "agrees with the server's" if not off else f"{off:+.1f} s against the server's",
            "" if good else "limiters correct it, but let NTP set it",
        )

    def _permissions(self) -> Iterator[Finding]:
        from botocore.exceptions import ClientError  # noqa: PLC0415

        for action, ask in self._attempts():
            try:
                ask()
            except ClientError as error:
                code = error.response["Error"]["Code"]
                if code in {"ConditionalCheckFailedException", "TransactionCanceledException"}:
                    continue
                denied = code in {"AccessDeniedException", "AccessDenied"}
                yield Finding(
                    "permissions",
                    "fail",
                    f"dynamodb:{action}: {'denied' if denied else code}",
                    "grant it with the construct: limiter.grants.acquire, .read or .admin",
                )
                return
        yield Finding("permissions", "ok", "reads, writes, deletes, queries, transactions")

    def _attempts(self) -> Iterator[tuple[str, Callable[[], Any]]]:
        """Writes whose condition never holds: allowed or not, they change nothing."""
        client, table = self.dynamodb, self.name
        place = key("_/DOCTOR#", "#NOTHING")
        never = {
            "TableName": table,
            "Key": place,
            "ConditionExpression": "attribute_exists(PK) AND attribute_not_exists(PK)",
        }
        yield "GetItem", lambda: client.get_item(TableName=table, Key=place)
        yield "BatchGetItem", lambda: client.batch_get_item(RequestItems={table: {"Keys": [place]}})
        yield "UpdateItem", lambda: client.update_item(**never)
        yield "DeleteItem", lambda: client.delete_item(**never)
        yield (
            "TransactWriteItems",
            lambda: client.transact_write_items(TransactItems=[{"ConditionCheck": never}]),
        )
        for index in (None, "GSI1", "GSI2", "GSI3", "GSI4"):
            name = f"{index or ''}PK"
            yield (
                f"Query{f' on {index}' if index else ''}",
                lambda index=index, name=name: client.query(  # type: ignore[misc]
                    TableName=table,
                    KeyConditionExpression=f"{name} = :p",
                    ExpressionAttributeValues={":p": {"S": "_/DOCTOR#"}},
                    Limit=1,
                    **({"IndexName": index} if index else {}),
                ),
            )

    def _namespace(self) -> Iterator[Finding]:
        limiter, name = self.run.limiter, self.run.namespace
        try:
            found = limiter.get_namespace(name)
            if found is None:
                yield Finding(
                    "namespace",
                    "warn",
                    f"{name} is not registered",
                    f"headgate namespace register {name}; `default` is made on first use",
                )
                return
            version = limiter.get_version()
            yield Finding("namespace", "ok", f"{name} ({found.id}), schema {version.schema}")
        except HeadgateError as error:
            yield Finding("namespace", "fail", str(error))


def _index(wanted: dict[str, Any], found: dict[str, Any] | None) -> Finding:
    name, projection = wanted["IndexName"], wanted["Projection"]["ProjectionType"]
    if found is None:
        return Finding(name, "fail", "missing", "deploy the construct again")
    if _keys(found["KeySchema"]) != _keys(wanted["KeySchema"]):
        return Finding(name, "fail", _keys(found["KeySchema"]), "its keys are not Headgate's")
    has = found["Projection"]["ProjectionType"]
    if has != projection:
        costs = "every acquire pays for the index too" if has == "ALL" else "reads will miss items"
        return Finding(name, "fail", f"projects {has}, not {projection}", costs)
    state = found.get("IndexStatus", "ACTIVE")
    return Finding(name, "ok" if state == "ACTIVE" else "warn", f"{has}, {state}")


def _keys(schema: list[dict[str, str]]) -> str:
    return ", ".join(f"{part['AttributeName']} {part['KeyType']}" for part in schema)


def _trouble(what: str, error: Exception, advice: str) -> Finding:
    response = getattr(error, "response", {}).get("Error", {})
    told = response.get("Message") or str(error)
    return Finding(what, "fail" if what == "table" else "warn", told, advice)
