"""Takes one request after the other until the limiter says no, and says how many it got."""

from headgate import RateLimitExceeded, SyncRateLimiter

limiter = SyncRateLimiter.from_env()


def handler(event, _context):
    admitted = 0
    try:
        while True:
            with limiter.acquire(event["user"], "api", {"requests": 1}):
                admitted += 1
    except RateLimitExceeded as error:
        return {
            "admitted": admitted,
            "retry_after": error.retry_after,
            "contended": error.contended,
        }
