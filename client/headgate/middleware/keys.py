"""Ready-made answers to the question whose bucket a request draws from."""

from __future__ import annotations

import ipaddress
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headgate.middleware.http import Incoming

# All who do not say who they are share one bucket: leaving the key out must gain nothing.
ANONYMOUS = "anonymous"


def by_header(name: str, *, missing: str = ANONYMOUS) -> Callable[[Incoming], str]:
    """The value of a header, such as an API key that something before this has verified."""
    wanted = name.lower()

    def key(request: Incoming) -> str:
        return request.headers.get(wanted) or missing

    return key


def by_claim(name: str, *, missing: str = ANONYMOUS) -> Callable[[Incoming], str]:
    """A claim of the caller's verified token, such as `sub`."""

    def key(request: Incoming) -> str:
        return str(request.claims.get(name) or missing)

    return key


def by_ip(request: Incoming) -> str:
    """The caller's address; of IPv6 the /64, all of which one caller has to choose from."""
    try:
        address = ipaddress.ip_address((request.address or "").partition("%")[0])
    except ValueError:
        return ANONYMOUS
    if isinstance(address, ipaddress.IPv4Address):
        return str(address)
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(ipaddress.ip_network((address, 64), strict=False))


def everyone(request: Incoming) -> str:
    """One bucket for all callers together."""
    del request
    return "everyone"
