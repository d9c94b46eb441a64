"""What each operation does: parsed requests in, answers out. Knows nothing of HTTP events."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from api import answers, asks, schemas
from api.answers import Answer
from api.asks import Ask, Named
from api.signing import Signer
from headgate import (
    CheckResult,
    HeadgateError,
    RateLimiterUnavailable,
    RateLimitExceeded,
    Settled,
    SyncLease,
    SyncRateLimiter,
    Ticket,
    ValidationError,
)

MOST_BUCKETS = schemas.MAX_REQUESTS


@dataclass(frozen=True)
class Service:
    """The operations, over one limiter."""

    limiter: SyncRateLimiter
    scopes: Collection[str]
    signer: Signer | None = None

    def check(self, body: Mapping[str, Any]) -> Answer:
        """One check: take, or look."""
        ask = asks.ask(body, self.scopes)
        seconds = self._lease_seconds(body)
        if body.get("dry_run"):
            return self._look(ask)
        (outcome,) = self._take([ask])
        return self._told(outcome, ask, seconds)

    def batch(self, body: Mapping[str, Any]) -> Answer:
        """Several checks, each on its own or all together."""
        several = [asks.ask(one, self.scopes) for one in body["requests"]]
        seconds = self._lease_seconds(body)
        if body.get("mode") == "all":
            joined = [named for ask in several for named in ask]
            _bound(len(joined))
            if body.get("dry_run"):
                return self._look(joined)
            (outcome,) = self._take([joined])
            return self._told(outcome, joined, seconds)
        _bound(sum(map(len, several)))
        if body.get("dry_run"):
            results = self._looks(several)
        else:
            taken = zip(self._take(several), several, strict=True)
            results = [self._told(outcome, ask, seconds) for outcome, ask in taken]
        told = [{"status": one.status, "answer": dict(one.body)} for one in results]
        passed = all(one.status == 200 for one in results)
        return Answer(200, {"allowed": passed, "results": told})

    def adjust(self, body: Mapping[str, Any]) -> Answer:
        """Corrects what a lease took."""
        ticket = self._signer().read(body["lease"])
        return self._settled(self.limiter.adjust(ticket, body["tokens"]))

    def release(self, body: Mapping[str, Any]) -> Answer:
        """Gives back what a lease took, or some of it."""
        ticket = self._signer().read(body["lease"])
        return self._settled(self.limiter.release(ticket, body.get("tokens")))

    def status(self, identifier: str, resource: str, scope: str | None) -> Answer:
        """Where a bucket stands."""
        if scope == asks.API_KEY:
            raise ValidationError(
                "an API key does not belong in a URL, which is logged: use a check with dry_run"
            )
        whose = None if scope == asks.GLOBAL and identifier == asks.GLOBAL else identifier
        one = {"identifier": whose, "resource": resource, "scope": scope}
        named = asks.named(one, self.scopes)
        # With what amount makes no difference to what is there.
        seen = self.limiter.check(named.request.entity_id, named.request.resource, 1)
        return answers.status(named, seen.limits, seen.mode)

    def _take(self, several: Sequence[Ask]) -> list[SyncLease | HeadgateError]:
        groups = [[named.request for named in ask] for ask in several]
        return self.limiter.acquire_each(groups)

    def _told(self, outcome: SyncLease | HeadgateError, ask: Ask, seconds: int | None) -> Answer:
        if isinstance(outcome, RateLimitExceeded):
            return answers.refused(outcome, ask)
        if isinstance(outcome, HeadgateError):
            return answers.failed(outcome)
        if outcome.degraded:
            return answers.degraded(outcome.degraded_reason)
        told = answers.passed([(one, _limits(outcome, one)) for one in ask])
        if seconds is None:
            return told
        return self._leased(told, outcome.ticket(expires_in=seconds))

    def _look(self, ask: Ask) -> Answer:
        seen = [(named, self._looked(named)) for named in ask]
        told = [(named, result.limits) for named, result in seen]
        no = [(named, result) for named, result in seen if not result.allowed]
        if not no:
            return answers.passed(told, dry_run=True)
        disabled = any(result.mode == "disabled" for _, result in no)
        blocked = [(named, result.limits) for named, result in no]
        return answers.would_not(told, blocked, "disabled" if disabled else None)

    def _looked(self, named: Named) -> CheckResult:
        request = named.request
        return self.limiter.check(request.entity_id, request.resource, request.consume)

    def _looks(self, several: Sequence[Ask]) -> list[Answer]:
        results: list[Answer] = []
        down: Answer | None = None
        for ask in several:
            try:
                # One that waited for a table which does not answer waited for all.
                results.append(down or self._look(ask))
            except HeadgateError as error:
                results.append(answers.failed(error))
                down = results[-1] if isinstance(error, RateLimiterUnavailable) else None
        return results

    def _settled(self, settled: Settled) -> Answer:
        ticket = settled.ticket
        ref = ticket.parts[0].ref
        named = asks.known(ref.entity_id, ref.resource, self.scopes)
        told = answers.settled([(named, settled.limits)], done=settled.done, held=ticket.consumed)
        return self._leased(told, ticket)

    def _leased(self, told: Answer, ticket: Ticket) -> Answer:
        lease = {"lease": self._signer().sign(ticket), "lease_expires_at": ticket.expires}
        return Answer(told.status, {**told.body, **lease}, told.headers)

    def _lease_seconds(self, body: Mapping[str, Any]) -> int | None:
        seconds: int | None = body.get("lease_seconds")
        if seconds is None:
            return None
        if body.get("dry_run"):
            raise ValidationError(f"lease_seconds is {seconds}: a dry run takes nothing to lease")
        self._signer().ready()
        return seconds

    def _signer(self) -> Signer:
        if self.signer is None:
            raise ValidationError("this deployment gives out no leases: it was made without")
        return self.signer


def _limits(lease: SyncLease, named: Named) -> answers.Limits:
    return lease.limits_of(named.request.entity_id, named.request.resource)


def _bound(count: int) -> None:
    if count > MOST_BUCKETS:
        raise ValidationError(
            f"the requests ask for {count} buckets in all: at most {MOST_BUCKETS} are allowed"
        )
