"""What is held of which bucket, and how a change of that falls on buckets and grants.

A lease and a ticket both hold grants. A change names limits: it falls on the buckets that were
asked for, and from each of them on those it cascaded to, as the draw did.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from headgate.acquire import Amounts, Grant
from headgate.bucket import Millitokens
from headgate.errors import ValidationError
from headgate.schema import BucketRef

Falls = dict[BucketRef, dict[str, Millitokens]]


def held(grants: Iterable[Grant], ref: BucketRef) -> dict[str, int]:
    """What is held of a bucket, in millitokens."""
    total: dict[str, int] = {}
    for grant in grants:
        if grant.ref == ref:
            for name, amount in grant.amounts.items():
                total[name] = total.get(name, 0) + amount
    return total


def tokens(grants: Iterable[Grant], ref: BucketRef) -> dict[str, int]:
    """The same in whole tokens."""
    return {name: amount // 1000 for name, amount in held(grants, ref).items()}


def check_held(
    what: str, holder: str, named: Mapping[BucketRef, Amounts], grants: Iterable[Grant]
) -> None:
    """Nobody gives back what they do not hold."""
    kept = list(grants)
    for ref, amounts in named.items():
        has = held(kept, ref)
        for name, amount in amounts.items():
            if amount > has.get(name, 0):
                raise ValidationError(
                    f"cannot {what} {amount // 1000} {name}: the {holder} holds "
                    f"{has.get(name, 0) // 1000}"
                )


def spread(
    named: Mapping[BucketRef, Amounts], parents: Mapping[BucketRef, Sequence[BucketRef]]
) -> Falls:
    """What falls on each bucket if these amounts are meant for the ones that were asked for."""
    falls: Falls = {}
    for asked, amounts in named.items():
        for ref in (asked, *parents.get(asked, ())):
            here = falls.setdefault(ref, {})
            for name, amount in amounts.items():
                here[name] = Millitokens(here.get(name, 0) + amount)
    return falls


def divided(grants: Sequence[Grant], falls: Falls) -> tuple[list[Grant], list[Grant]]:
    """What stays of these grants and what goes back, the newest first, if so much is returned to
    each bucket: at most what is held of it.
    """
    left = {ref: dict(amounts) for ref, amounts in falls.items()}
    kept: list[Grant] = []
    back: list[Grant] = []
    for grant in reversed(grants):
        wanted = left.get(grant.ref, {})
        out = {n: Millitokens(min(a, wanted.get(n, 0))) for n, a in grant.amounts.items()}
        for name, amount in out.items():
            if name in wanted:
                wanted[name] = Millitokens(wanted[name] - amount)
        stays = {n: Millitokens(a - out[n]) for n, a in grant.amounts.items() if a > out[n]}
        gone = {n: a for n, a in out.items() if a}
        if stays:
            kept.append(Grant(grant.ref, grant.shard, stays))
        if gone:
            back.append(Grant(grant.ref, grant.shard, gone))
    return kept[::-1], back


def joined(grants: Iterable[Grant]) -> tuple[Grant, ...]:
    """The same with one grant for each item, in the order in which they were first drawn from."""
    found: dict[tuple[BucketRef, int], dict[str, Millitokens]] = {}
    for grant in grants:
        here = found.setdefault((grant.ref, grant.shard), {})
        for name, amount in grant.amounts.items():
            here[name] = Millitokens(here.get(name, 0) + amount)
    return tuple(Grant(ref, shard, amounts) for (ref, shard), amounts in found.items())
