"""Two users of one organisation talk to a model until the organisation's tokens are short.

    .venv/bin/python examples/llm/run.py

Runs on this machine alone: an embedded engine holds the table, a small server is the model.
"""

import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))

import boto3
from chat import MODEL, ask, set_up
from server import completion_server

import engine
from headgate import RateLimitExceeded, SyncRateLimiter
from headgate.schema import table_definition


def main():
    with engine.ministack() as running, completion_server() as url:
        os.environ.update(engine.environment(running.endpoint_url))
        boto3.client("dynamodb").create_table(**table_definition("limits"))
        # A laptop that is busy may be slower than DynamoDB is.
        with SyncRateLimiter("limits", read_timeout=20) as limiter:
            users = ("alice", "bob")
            set_up(limiter, "acme", users, user_tpm=3_000, organisation_tpm=1_000)
            talk(limiter, url, users)


def talk(limiter, url, users):
    prompt = " ".join(["word"] * 100)
    for turn in range(20):
        user = users[turn % len(users)]
        try:
            _, used = ask(limiter, url, user, prompt)
        except RateLimitExceeded as error:
            print(f"{user}: refused, {error.entity_id} has {error.limits[0].available} left")
            return
        left = {who: limiter.available(who, MODEL)["tpm"] for who in (user, "acme")}
        print(f"{user}: used {used}, left {left}")


if __name__ == "__main__":
    main()
