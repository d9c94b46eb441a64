"""Calls of a model, metered by the token: for each user, and for the organisation they share.

What a call takes is known when it is over. So it takes the most that it can take beforehand, and
gives back the difference afterwards: no number of calls at once can exceed the limit.
"""

import json
import urllib.request

from headgate import Limit

MODEL = "gpt-4"


def set_up(limiter, organisation, users, *, user_tpm, organisation_tpm):
    """Limits for every user, more for the organisation, and users that draw from both."""
    limiter.set_limits(
        [Limit.per_minute("rpm", 60), Limit.per_minute("tpm", user_tpm)], resource=MODEL
    )
    limiter.set_limits(
        [Limit.per_minute("tpm", organisation_tpm)], entity_id=organisation, resource=MODEL
    )
    limiter.create_entity(organisation)
    for user in users:
        limiter.create_entity(user, parent_id=organisation, cascade=True)


def ask(limiter, url, user, prompt, *, max_tokens=200):
    """The model's answer, and what it took. If the call fails, nothing was taken."""
    estimate = len(prompt.split()) + max_tokens
    with limiter.acquire(user, MODEL, {"rpm": 1, "tpm": estimate}) as lease:
        answer = complete(url, prompt, max_tokens)
        used = answer["usage"]["total_tokens"]
        lease.adjust(tpm=used - estimate)
    return answer["choices"][0]["message"]["content"], used


def complete(url, prompt, max_tokens):
    """One request to the model's server."""
    asked = {
        "model": MODEL,
        "max_tokens": max_tokens,
        "messages": [{"role": "user", "content": prompt}],
    }
    request = urllib.request.Request(
        f"{url}/v1/chat/completions",
        json.dumps(asked).encode(),
        {"Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=30) as response:
        return json.load(response)
