"""Buckets that live: drawn from, given back to, relimited, split, merged, expired, made anew."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime

from headgate.bucket import BASELINE
from headgate.schema import STATE, BucketRef, EntityId, NamespaceId, Resource
from headgate.usage import WINDOWS, stamp, window_start
from tests.simulation.engine import Engine
from tests.stream.esm import Stream

NS = NamespaceId("streamtests")
START = 1_767_268_380_000  # 2026-01-01T11:53:00Z
LIMITS = ("rpm", "tpm", "usd")


def ref(number):
    return BucketRef(NS, EntityId(f"user-{number}"), Resource(("gpt-4", "search")[number % 2]))


class Life:
    """A table with a stream, and random writes to a few buckets of a few shards."""

    def __init__(self, rng, *, buckets=3):
        self.rng = rng
        self.now = START
        self.stream = Stream(rng, lambda: self.now)
        self.engine = Engine(on_change=self._changed)
        self._buckets = buckets
        self._expiring = False
        self._from_nothing = set()

    def _changed(self, place, old, new):
        if place[1] == STATE:
            self.stream.wrote(place, old, new, expired=self._expiring)

    def live(self):
        """One write to some bucket, or time that passes."""
        chance = self.rng.random()
        if chance < 0.1:
            self.now += self.rng.choice([1_000, 60_000, 3_600_000, 86_400_000, 20 * 86_400_000])
            return
        if chance < 0.13:
            self.stream.split()
            return
        bucket = ref(self.rng.randrange(self._buckets))
        shard = self.rng.choice([0, 0, 1, 17])
        place = bucket.pk(shard), STATE
        item = self.engine.items.get(place)
        if item is None:
            self.engine._put(place, self._made(bucket, shard))
            return
        action = self.rng.choice([self._draw] * 6 + [self._relimit, self._touch, self._remove])
        action(place, dict(item))

    def _made(self, bucket, shard):
        item = {
            **bucket.identity(shard),
            "shard_count": {"N": "1"},
            "rf": {"N": str(BASELINE)},
            "b_wcu_tc": {"N": "1000"},
        }
        for name in self.rng.sample(LIMITS, self.rng.randint(1, 3)):
            item[f"b_{name}_tc"] = self._amount()
            if self.rng.random() < 0.2:
                item[f"b_{name}_tc"] = {"N": "0"}
                self._from_nothing.add(((bucket.pk(shard), STATE), f"b_{name}_tc"))
        return item

    def _draw(self, place, item):
        names = [name for name in item if name.endswith("_tc") and name != "b_wcu_tc"]
        for name in self.rng.sample(names, self.rng.randint(1, len(names))):
            # What is given back is often just what was taken, so totals come back as well.
            total, large = int(item[name]["N"]), int(self._amount()["N"])
            drawn = self.rng.choice([5_000, 5_000, large]) if total else large
            item[name] = {"N": str(total + self.rng.choice([1, 1, -1]) * drawn)}
        self._touch(place, item)

    def _relimit(self, place, item):
        # A limit that comes and goes again leaves the totals as they were, although it counted:
        # were all of that lost at once, nothing would show that something is missing.
        name = f"b_{self.rng.choice(LIMITS)}_tc"
        if name not in item:
            item[name] = {"N": "0"}
            self._from_nothing.add((place, name))
        elif sum(n.endswith("_tc") for n in item) > 2 and (place, name) not in self._from_nothing:
            del item[name]
        self._touch(place, item)

    def _touch(self, place, item):
        item["b_wcu_tc"] = {"N": str(int(item["b_wcu_tc"]["N"]) + 1000)}
        self.engine._put(place, item)

    def _remove(self, place, _):
        self._expiring = self.rng.random() < 0.5
        self.engine._put(place, None)
        self._expiring = False

    def _amount(self):
        # So many digits that two lives of an item never have the same totals by accident.
        return {"N": str(self.rng.randint(1, 10**12))}

    # ------------------------------------------------------------ what should be, and what is

    def expected(self):
        """Usage by snapshot, from the records alone, each once."""
        used, acquires = Counter(), Counter()
        for record in self.stream.records():
            body = record["dynamodb"]
            if "NewImage" not in body:
                continue
            drawn = {
                name[2:-3]: int(value["N"])
                - int(body.get("OldImage", {}).get(name, {"N": "0"})["N"])
                for name, value in body["NewImage"].items()
                if name.endswith("_tc") and name != "b_wcu_tc"
            }
            for where in self._snapshots(body):
                for name, amount in drawn.items():
                    used[where, name] += amount
                acquires[where] += any(amount > 0 for amount in drawn.values())
        return _nonzero(used), _nonzero(acquires)

    def found(self):
        """Usage by snapshot, as the snapshots have it."""
        used, acquires = Counter(), Counter()
        for (pk, sk), item in self.engine.items.items():
            if not sk.startswith("#USAGE#"):
                continue
            for name, value in item.items():
                if name.startswith("u_"):
                    used[(pk, sk), name[2:]] += int(value["N"])
            acquires[pk, sk] += int(item["acquires"]["N"])
        return _nonzero(used), _nonzero(acquires)

    def _snapshots(self, body):
        _, entity_id, resource, _ = body["Keys"]["PK"]["S"].split("#")
        moment = datetime.fromtimestamp(body["ApproximateCreationDateTime"], UTC)
        for window in WINDOWS:
            start = stamp(window_start(window, moment))
            yield f"{NS}/ENTITY#{entity_id}", f"#USAGE#{resource}#{window}#{start}"


def _nonzero(counts):
    return {key: value for key, value in counts.items() if value}
