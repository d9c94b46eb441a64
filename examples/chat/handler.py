"""A function that is limited: each call costs one of a user's requests a day, and tokens."""

import json

from headgate import RateLimitExceeded, SyncRateLimiter

# Made once for each process. Table and namespace come from the environment.
limiter = SyncRateLimiter.from_env()


def handler(event, _context):
    try:
        with limiter.acquire(event["user"], "gpt-4", {"rpd": 1, "tpm": 500}) as lease:
            answer, used = call_the_model(event["prompt"])
            lease.adjust(tpm=used - 500)  # what it really took
    except RateLimitExceeded as error:
        return {
            "statusCode": 429,
            "headers": error.headers(),
            "body": json.dumps(error.as_dict()),
        }
    return {"statusCode": 200, "body": json.dumps({"answer": answer})}


def call_the_model(prompt):
    """Stands for a call that is metered by the token."""
    return prompt.upper(), 10 * len(prompt.split())
