"""The limiter where requests enter: ASGI, Powertools' event handler, plain Lambda handlers.

What is limited, and how, is a `Policy`, the same for all three. The adapters are modules of
their own (`asgi`, `powertools`, `handler`), so that each needs only the framework it is for.
"""

from headgate.middleware.http import Incoming, Outgoing
from headgate.middleware.keys import by_claim, by_header, by_ip, everyone
from headgate.middleware.policy import Policy, Refusal, Scope

__all__ = [
    "Incoming",
    "Outgoing",
    "Policy",
    "Refusal",
    "Scope",
    "by_claim",
    "by_header",
    "by_ip",
    "everyone",
]
