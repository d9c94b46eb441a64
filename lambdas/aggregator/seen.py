"""Which records of an item a snapshot has counted: spans of its history, mostly one.

An item's records are in order, and each starts from the totals that the one before it left. So
two spans whose ends have the same totals have nothing between them that counts, and are one: had
something been drawn there, it was given back there. Only an item that is made anew starts from
nothing, whatever was before. A gap stays open until the records that belong there arrive, however
late: from the failure queue, for instance. A record inside a span was counted.

    hi_{shard}   the last sequence number counted
    ln_{shard}   the totals after it, as a link
    lo_{shard}   the first sequence number counted, and the link before it
    gp_{shard}   the gaps in between, if there are any: the marks on both sides of each
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import pairwise
from typing import Any, NamedTuple

from aggregator.records import NO_ITEM, BucketChange

# A gap costs 70 bytes for as long as the snapshot lives. With more than these, the oldest is
# taken to be nothing: what arrives for it later is not counted.
MOST_GAPS = 4


class Mark(NamedTuple):
    """An end of a span: a counted record, and the totals on its outer side."""

    sequence: int
    link: str


class Span(NamedTuple):
    """Records from the first to the last, all counted."""

    first: Mark
    last: Mark


Spans = tuple[Span, ...]


def covers(spans: Spans, sequence: int) -> bool:
    """Whether this record was counted."""
    return any(span.first.sequence <= sequence <= span.last.sequence for span in spans)


def cover(spans: Spans, changes: Iterable[BucketChange]) -> Spans:
    """The spans once these records, none of which they cover, are counted as well."""
    alone = [
        Span(Mark(change.sequence, before), Mark(change.sequence, after))
        for change in changes
        for before, after in [change.links]
    ]
    joined: list[Span] = []
    for span in sorted([*spans, *alone]):
        if joined and joined[-1].last.link == span.first.link:
            joined[-1] = Span(joined[-1].first, span.last)
        else:
            joined.append(span)
    return tuple(joined)


def bounded(spans: Spans) -> Spans:
    """The same with no more gaps than are kept. Those where an item expired and was made anew go
    first: nothing is missing there unless it was lost just before.
    """
    kept = list(spans)
    while len(kept) - 1 > MOST_GAPS:
        renewed = (i for i, span in enumerate(kept[1:]) if span.first.link == NO_ITEM)
        at = next(renewed, 0)
        kept[at : at + 2] = [Span(kept[at].first, kept[at + 1].last)]
    return tuple(kept)


def sortable(sequence: int) -> str:
    """A sequence number as a string that sorts as the number does: of up to 40 digits, it is too
    long for DynamoDB's numbers.
    """
    digits = str(sequence)
    return f"{len(digits):02}{digits}"


def written(shard: int, spans: Spans) -> dict[str, str]:
    """The attributes that store these spans."""
    stored = {
        f"hi_{shard}": sortable(spans[-1].last.sequence),
        f"ln_{shard}": spans[-1].last.link,
        f"lo_{shard}": _text(spans[0].first),
    }
    sides = [f"{_text(left.last)} {_text(right.first)}" for left, right in pairwise(spans)]
    return {**stored, f"gp_{shard}": " ".join(sides)} if sides else stored


def read(shard: int, item: Mapping[str, Any] | None) -> Spans:
    """The spans that a snapshot's item stores for a shard."""
    if item is None or f"hi_{shard}" not in item:
        return ()
    words = item[f"lo_{shard}"]["S"].split()
    if f"gp_{shard}" in item:
        words += item[f"gp_{shard}"]["S"].split()
    words += [item[f"hi_{shard}"]["S"], item[f"ln_{shard}"]["S"]]
    marks = [
        Mark(int(sequence[2:]), link)
        for sequence, link in zip(words[::2], words[1::2], strict=True)
    ]
    return tuple(Span(*pair) for pair in zip(marks[::2], marks[1::2], strict=True))


def _text(mark: Mark) -> str:
    return f"{sortable(mark.sequence)} {mark.link}"
