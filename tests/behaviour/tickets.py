"""What tests of tickets share: limits, a ticket as it travels, the kinds of change."""

from __future__ import annotations

import json

from headgate import Limit, Ticket

RPM = Limit.per_minute("rpm", 10)
TPM = Limit.per_minute("tpm", 1_000)
BOTH = {"rpm": 1, "tpm": 100}


CHANGES = {
    "up": ({"tpm": 50}, {"rpm": 1, "tpm": 150}),
    "down": ({"tpm": -60}, {"rpm": 1, "tpm": 40}),
    "both": ({"rpm": 2, "tpm": -60}, {"rpm": 3, "tpm": 40}),
    "the other way round": ({"rpm": -1, "tpm": 60}, {"tpm": 160}),
    "into debt": ({"tpm": 1_900}, {"rpm": 1, "tpm": 2_000}),
}


def left(limiter, entity="alice"):
    return limiter.available(entity, "gpt-4")


def taken(limiter, entity="alice", consume=BOTH, **options):
    """A ticket as it travels: through JSON."""
    with limiter.acquire(entity, "gpt-4", consume) as lease:
        pass
    return travelled(lease.ticket(**options))


def travelled(ticket):
    return Ticket.from_dict(json.loads(json.dumps(ticket.as_dict())))
