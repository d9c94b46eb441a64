"""A DynamoDB stream, and Lambda's event source mapping on it, as AWS documents them.

What the mapping promises is little: the records of one key come in order, each at least once or
its place in the failure queue. What it may do meanwhile is a lot, and all of it is done here, at
random: batches of any size; retries; batches cut in half on an error, and at the first reported
failure; the batch again although it succeeded; from an earlier checkpoint, cut otherwise; several
batches of a stream shard at once, by key; an invocation that timed out and whose writes still
arrive; batches given up on.

A function is a flow: a generator that yields batches of calls. So invocations interleave.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass, field

from headgate.effects import Pause

ARN = "arn:aws:dynamodb:us-east-1:000000000000:table/table/stream/2026-01-01T00:00:00.000"


# ---------------------------------------------------------------- the stream


@dataclass
class StreamShard:
    """A part of the stream. A closed one has children, which are read after it."""

    id: str
    parent: StreamShard | None = None
    records: list = field(default_factory=list)
    children: tuple = ()


class Stream:
    """Records of changes, each in the shard of its key."""

    def __init__(self, rng, now):
        self._rng = rng
        self._now = now
        # Close to a power of ten: numbers of different length must compare as numbers.
        self._sequence = 10**21 - rng.randint(1, 300)
        self._count = 1
        self.root = StreamShard("shardId-0")

    def wrote(self, place, old, new, *, expired=False):
        """A change of the table. One that changes nothing makes no record."""
        if old == new:
            return
        self._sequence += self._rng.randint(1, 50)
        names = {(False, True): "INSERT", (True, True): "MODIFY", (True, False): "REMOVE"}
        body = {
            # Lambda's records carry the time in whole seconds.
            "ApproximateCreationDateTime": float(self._now() // 1000),
            "Keys": {"PK": {"S": place[0]}, "SK": {"S": place[1]}},
            "SequenceNumber": str(self._sequence),
            "SizeBytes": 1,
            "StreamViewType": "NEW_AND_OLD_IMAGES",
        }
        if old is not None:
            body["OldImage"] = old
        if new is not None:
            body["NewImage"] = new
        record = {
            "eventID": f"event-{self._sequence}",
            "eventName": names[old is not None, new is not None],
            "eventVersion": "1.1",
            "eventSource": "aws:dynamodb",
            "awsRegion": "us-east-1",
            "eventSourceARN": ARN,
            "dynamodb": body,
        }
        if expired:
            record["userIdentity"] = {"type": "Service", "principalId": "dynamodb.amazonaws.com"}
        self._open_shard(place[0]).records.append(record)

    def split(self):
        """A shard that takes writes gives way to two."""
        open_ones = [shard for shard in self.shards() if not shard.children]
        shard = self._rng.choice(open_ones)
        shard.children = tuple(StreamShard(f"{shard.id}.{i}", shard) for i in (0, 1))

    def shards(self, start=None):
        shard = start or self.root
        yield shard
        for child in shard.children:
            yield from self.shards(child)

    def records(self):
        """All of them, in the order in which they were written."""
        return sorted((r for s in self.shards() for r in s.records), key=sequence)

    def between(self, shard_id, first, last):
        """What a shard holds between two sequence numbers: how a failed batch is read again."""
        (shard,) = [shard for shard in self.shards() if shard.id == shard_id]
        return [r for r in shard.records if int(first) <= sequence(r) <= int(last)]

    def _open_shard(self, pk):
        shard, digits = self.root, zlib.crc32(pk.encode())
        while shard.children:
            shard, digits = shard.children[digits % 2], digits // 2
        return shard


def sequence(record):
    return int(record["dynamodb"]["SequenceNumber"])


# ---------------------------------------------------------------- the mapping


@dataclass(frozen=True)
class Mapping:
    """The settings of an event source mapping."""

    batch_size: int = 10
    parallelization: int = 1
    bisect: bool = True
    report: bool = True
    retries: int = 2


MOST_REWINDS = 10  # or it would never end


@dataclass(frozen=True)
class Chaos:
    """How often what may happen does happen."""

    timeouts: float = 0.0  # of a step of an invocation
    zombies: float = 0.0  # of those that timed out: what they still do, takes effect
    duplicates: float = 0.0  # of batches that ended
    rewinds: float = 0.0  # of batches that begin


@dataclass
class Lane:
    """The records of a stream shard whose keys are processed one batch after the other."""

    shard: StreamShard
    number: int
    taken: int = 0  # records of the shard that were put into batches, or are for other lanes
    work: list = field(default_factory=list)  # (records, tries), the first one is next
    busy: bool = False


class Invocation:
    """A function at work on a batch."""

    def __init__(self, records, flow, lane=None):
        self.records = records
        self.lane = lane
        self._flow = flow
        self._outcomes = None
        self.ended = False
        self.response = None
        self.error = None

    def advance(self, wire, rng):
        """One round trip. The calls of a batch take effect in any order."""
        try:
            effect = next(self._flow) if self._outcomes is None else self._flow.send(self._outcomes)
        except StopIteration as stop:
            self.ended, self.response = True, stop.value
        except Exception as error:  # noqa: BLE001 - as Lambda does
            self.ended, self.error = True, error
        else:
            self._outcomes = []
            if not isinstance(effect, Pause):
                order = list(range(len(effect)))
                rng.shuffle(order)
                done = {position: wire(effect[position]) for position in order}
                self._outcomes = [done[position] for position in range(len(effect))]


class EventSourceMapping:
    """Feeds a function from a stream."""

    def __init__(self, stream, function, mapping, rng, wire, *, chaos=None, matches=None):
        self.stream = stream
        self.mapping = mapping
        self.chaos = chaos or Chaos()
        self.failures = []  # the messages in the failure queue
        self.invoked = []  # every batch that was delivered
        self._function = function
        self._matches = matches or (lambda record: True)
        self._rng = rng
        self._wire = wire
        self._lanes = {}
        self._running = []
        self._rewinds = MOST_REWINDS

    def step(self):
        """Begins an invocation or advances one. False if there is nothing to do."""
        idle = [lane for lane in self._all_lanes() if not lane.busy and self._fill(lane)]
        choices = [*((self._begin, lane) for lane in idle)]
        choices += [(self._advance, invocation) for invocation in self._running]
        if not choices:
            return False
        action, subject = self._rng.choice(choices)
        action(subject)
        return True

    def drain(self):
        """Until every record was processed or given up on."""
        while self.step():
            pass

    def redrive(self, message):
        """Delivers a failed batch once more, as the message tells to find it."""
        info = message["DDBStreamBatchInfo"]
        records = self.stream.between(
            info["shardId"], info["startSequenceNumber"], info["endSequenceNumber"]
        )
        matching = [record for record in records if self._matches(record)]
        lane = Lane(StreamShard(info["shardId"]), -1, work=[(matching, 0)])
        self._lanes[f"redrive-{len(self._lanes)}"] = lane

    # ------------------------------------------------------------ lanes

    def _all_lanes(self):
        for shard in self.stream.shards():
            for number in range(self.mapping.parallelization):
                lane = self._lanes.setdefault((shard.id, number), Lane(shard, number))
                if shard.parent is None or self._is_read(shard.parent):
                    yield lane
        yield from [lane for lane in self._lanes.values() if lane.number < 0]

    def _is_read(self, shard):
        lanes = [lane for lane in self._lanes.values() if lane.shard is shard]
        return (shard.parent is None or self._is_read(shard.parent)) and all(
            lane.taken == len(shard.records) and not lane.work and not lane.busy for lane in lanes
        )

    def _fill(self, lane):
        """Whether there is a batch to deliver; makes one."""
        if lane.work:
            return True
        if lane.taken and self._rewinds and self._rng.random() < self.chaos.rewinds:
            self._rewinds -= 1
            lane.taken = self._rng.randrange(lane.taken)
        batch, size = [], self._rng.randint(1, self.mapping.batch_size)
        while lane.taken < len(lane.shard.records) and len(batch) < size:
            record = lane.shard.records[lane.taken]
            lane.taken += 1
            key = zlib.crc32(str(record["dynamodb"]["Keys"]).encode())
            if self._matches(record) and key % self.mapping.parallelization == lane.number:
                batch.append(record)
        if batch:
            lane.work.append((batch, 0))
        return bool(batch)

    # ------------------------------------------------------------ invocations

    def _begin(self, lane):
        lane.busy = True
        self._start(lane.work[0][0], lane)

    def _start(self, records, lane=None):
        self.invoked.append(records)
        self._running.append(Invocation(records, self._function(records), lane))

    def _advance(self, invocation):
        if invocation.lane is not None and self._rng.random() < self.chaos.timeouts:
            lane, invocation.lane = invocation.lane, None
            if self._rng.random() >= self.chaos.zombies:
                self._running.remove(invocation)
            self._settle(lane, 0)
            return
        invocation.advance(self._wire, self._rng)
        if not invocation.ended:
            return
        self._running.remove(invocation)
        if self._rng.random() < self.chaos.duplicates:
            self._start(invocation.records)
        if invocation.lane is not None:
            self._settle(invocation.lane, self._first_failed(invocation))

    def _first_failed(self, invocation):
        """How many records of the batch are done: those before the lowest reported failure."""
        if invocation.error is not None:
            return 0
        response = invocation.response
        if not self.mapping.report or not response or not response.get("batchItemFailures"):
            return len(invocation.records)
        known = {r["dynamodb"]["SequenceNumber"]: r for r in invocation.records}
        reported = [failure.get("itemIdentifier") for failure in response["batchItemFailures"]]
        if any(number not in known for number in reported):
            return 0  # a response that makes no sense is a failure of the whole batch
        return min(invocation.records.index(known[number]) for number in reported)

    def _settle(self, lane, done):
        lane.busy = False
        records, tries = lane.work.pop(0)
        left = records[done:]
        if not left:
            return
        if done:
            lane.work.insert(0, (left, tries))
        elif self.mapping.bisect and len(left) > 1 and self._rng.random() < 0.7:
            # Cutting a batch in two does not count as a retry.
            middle = len(left) // 2
            lane.work[:0] = [(left[:middle], tries), (left[middle:], tries)]
        elif tries < self.mapping.retries:
            lane.work.insert(0, (left, tries + 1))
        else:
            self.failures.append(_message(lane, left, tries + 1))


def _message(lane, records, invocations):
    """What arrives in the failure queue: not the records, but where they are."""
    return {
        "requestContext": {
            "requestId": "00000000-0000-0000-0000-000000000000",
            "functionArn": "arn:aws:lambda:us-east-1:000000000000:function:aggregator",
            "condition": "RetryAttemptsExhausted",
            "approximateInvokeCount": invocations,
        },
        "responseContext": {"statusCode": 200, "executedVersion": "$LATEST"},
        "version": "1.0",
        "DDBStreamBatchInfo": {
            "shardId": lane.shard.id,
            "startSequenceNumber": records[0]["dynamodb"]["SequenceNumber"],
            "endSequenceNumber": records[-1]["dynamodb"]["SequenceNumber"],
            "batchSize": len(records),
            "streamArn": ARN,
        },
    }
