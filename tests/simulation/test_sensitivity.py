"""The simulator finds what it is there to find: each known flaw, put back, breaks a promise.

The first ones are the flaws that it found in the design or in our code; the rest are what
other limiters do.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from headgate import acquire, lease, settle, several, shards, views, writes
from headgate.bucket import Shard, share
from headgate.schema import Bucket
from tests.simulation.scenario import run
from tests.simulation.watch import Broken

ENOUGH = 400


def oversized_requests_pass(patch):
    patch.setattr(shards, "too_large", lambda bucket, consume: False)


def one_limit_keeps_the_memory_of_another(patch):
    def covers(self, consume, now):
        latest = max(until for _, until in self.short.values())
        return now < latest and any(
            consume.get(name, 0) >= amount for name, (amount, _) in self.short.items()
        )

    patch.setattr(views.Refusal, "covers", covers)


def adjustments_put_one_shard_in_debt(patch):
    def forced(self, bucket):
        amounts = bucket.limits.amounts(self.consume)
        request = writes.debit_blind(self.core.table, self.ref, bucket, amounts, self.core.now())
        answer = yield from self.core.ask(request)
        return self._granted(bucket, answer.body["Attributes"])

    patch.setattr(acquire.Draw, "_forced", forced)


def debts_are_divided_by_the_number_of_shards(patch):
    original = shards.allot

    def allot(buckets, consume, now, *, force=False):
        if not force:
            return original(buckets, consume, now)
        drawn = {}
        for name, amount in consume.items():
            for place, bucket in enumerate(buckets):
                part = share(amount, Shard(place, len(buckets)))
                drawn.setdefault(bucket.shard.i, {})[name] = part
        return drawn

    patch.setattr(shards, "allot", allot)


def splits_trust_what_was_seen(patch):
    original = writes.hand_over

    def hand_over(table, ref, before, after, now):
        action = original(table, ref, before, after, now)["Update"]
        action["ConditionExpression"] = writes.SAME_BUCKET
        values = action["ExpressionAttributeValues"]
        action["ExpressionAttributeValues"] = {
            name: value
            for name, value in values.items()
            if not name.startswith(":l") or name == ":lv"
        }
        return {"Update": action}

    patch.setattr(writes, "hand_over", hand_over)


def adjustments_are_blind(patch):
    """The design's unconditional ADD: accrual above the cap pays for it."""
    original = writes.debit

    def debit(table, ref, bucket, amounts, now, *, fresh=False, force=False):
        if force:
            return writes.debit_blind(table, ref, bucket, amounts, now)
        return original(table, ref, bucket, amounts, now, fresh=fresh)

    patch.setattr(writes, "debit", debit)


def new_shards_are_full(patch):
    original = shards.halves

    def halves(bucket, now, *, give=True):
        lower, upper = original(bucket, now, give=give)
        full = Bucket.full(upper.limits, now, shard=upper.shard)
        return lower, replace(upper, tk=full.tk)

    patch.setattr(shards, "halves", halves)


def credits_are_repeated(patch):
    original = writes.credit
    patch.setattr(writes, "credit", lambda *a: replace(original(*a), repeatable=True))


def buckets_expire_at_once(patch):
    patch.setattr(writes._Expiry, "moment", lambda self: self._now // 1000 + 1)


def failed_cascades_keep_what_they_took(patch):
    def undo(core, grants):
        return True
        yield

    patch.setattr(several, "undo", undo)


def parents_of_parents_are_skipped(patch):
    patch.setattr(several, "MAX_DEPTH", 1)


def rollbacks_are_forgotten(patch):
    def undo(core, grants):
        return True
        yield

    patch.setattr(lease, "undo", undo)


def the_cap_is_not_applied(patch):
    patch.setattr(writes, "guess", lambda bucket, position, now: writes.Clause.ACTIVE)
    patch.setattr(writes, "slack", lambda rate, shard: 10**18)


def shards_reject_by_themselves(patch):
    def gather(self):
        raise self._rejected((self.core.views.get(self.ref).bucket,), self.core.now())
        yield

    patch.setattr(acquire.Draw, "_gather", gather)


def marks_are_made_whatever_was_marked(patch):
    original = settle._Settlement._mark

    def mark(self, step, note):
        action = original(self, step, note)
        del action["Update"]["ConditionExpression"]
        return action

    patch.setattr(settle._Settlement, "_mark", mark)


def marks_expire_before_their_tickets(patch):
    patch.setattr(settle, "KEPT", -10 * 604_800)


def successors_are_made_by_whoever_asks(patch):
    original = settle._Settlement._successor

    def successor(self, drawn):
        made = original(self, drawn)
        return replace(made, id=f"{self.core.rng.getrandbits(96):024x}")

    patch.setattr(settle._Settlement, "_successor", successor)


def mixed_changes_forget_what_goes_back(patch):
    """As one transaction for both would have to, where both are of one item."""
    original = settle._Settlement._credits

    def credits_(self, seen):
        plan = yield from original(self, seen)
        return settle.Plan(note=plan.note) if self.up else plan

    patch.setattr(settle._Settlement, "_credits", credits_)


FLAWS = {
    oversized_requests_pass: "plain",
    one_limit_keeps_the_memory_of_another: "plain",
    adjustments_put_one_shard_in_debt: "sharded",
    debts_are_divided_by_the_number_of_shards: "sharded",
    splits_trust_what_was_seen: "sharded",
    adjustments_are_blind: "plain",
    new_shards_are_full: "sharded",
    credits_are_repeated: "faulty",
    buckets_expire_at_once: "plain",
    failed_cascades_keep_what_they_took: "cascade",
    parents_of_parents_are_skipped: "cascade",
    rollbacks_are_forgotten: "plain",
    the_cap_is_not_applied: "plain",
    shards_reject_by_themselves: "sharded",
    marks_are_made_whatever_was_marked: "tickets",
    marks_expire_before_their_tickets: "tickets",
    successors_are_made_by_whoever_asks: "tickets",
    mixed_changes_forget_what_goes_back: "tickets",
}


@pytest.mark.parametrize("flaw", FLAWS, ids=lambda flaw: flaw.__name__)
def test_a_flaw_is_found(flaw, monkeypatch):
    flaw(monkeypatch)
    with pytest.raises(Broken, match=r"seed \d+ .*P[1234]:"):
        for seed in range(ENOUGH):
            run(seed, FLAWS[flaw])
