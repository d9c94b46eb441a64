"""A backend behind the authorizer. It needs no limiter: who comes here has passed."""

import json

HEADERS = {
    "RateLimit-Policy": "policy",
    "RateLimit": "standing",
    "X-RateLimit-Limit": "limit",
    "X-RateLimit-Remaining": "remaining",
    "X-RateLimit-Reset": "reset",
    "X-RateLimit-Degraded": "degraded",
}


def handler(event, _context):
    told = event["requestContext"]["authorizer"]
    told = told.get("lambda", told)  # an HTTP API has it one level deeper than a REST API
    headers = {name: told[key] for name, key in HEADERS.items() if key in told}
    return {"statusCode": 200, "headers": headers, "body": json.dumps({"caller": told.get("sub")})}
