"""botocore's exceptions as outcomes: the same for both SDKs."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

from headgate.effects import (
    ConditionFailed,
    Conflicted,
    Outcome,
    Refused,
    Throttled,
    TransactionFailed,
    Unreachable,
)
from headgate.errors import AccessDenied, ClockSkewed, TableError, TableNotFound

_THROTTLES = frozenset(
    {
        "ProvisionedThroughputExceededException",
        "ThrottlingException",
        "Throttling",
        "RequestLimitExceeded",
        "LimitExceededException",
    }
)
_DENIALS = frozenset(
    {
        "AccessDeniedException",
        "AccessDenied",
        "UnrecognizedClientException",
        "InvalidClientTokenId",
        "MissingAuthenticationToken",
        "MissingAuthenticationTokenException",
        "ExpiredTokenException",
        "ExpiredToken",
        "OptInRequired",
        "KMSAccessDeniedException",
    }
)
_SKEWS = frozenset({"InvalidSignatureException", "RequestTimeTooSkewed", "RequestExpired"})
_CONFLICTS = frozenset({"TransactionConflictException", "TransactionInProgressException"})

# The part of a throttling reason that tells a hot key from a table at its cap.
_OF_KEY = "KeyRangeThroughputExceeded"


def from_exception(error: Exception, table: str) -> Outcome:
    """What an exception says of the request's fate."""
    if isinstance(error, OSError):
        return Unreachable(f"{type(error).__name__}: {error}")
    if "botocore" not in sys.modules:
        return Refused(error)
    from botocore import exceptions as sdk  # noqa: PLC0415 - not loaded for its exceptions alone

    if isinstance(error, sdk.ClientError):
        return from_error(error.response, table, error)
    if isinstance(error, sdk.NoCredentialsError | sdk.PartialCredentialsError):
        return Refused(AccessDenied(f"no credentials to reach table {table!r}: {error}"))
    if isinstance(error, sdk.ConnectionError | sdk.HTTPClientError):
        return Unreachable(f"{type(error).__name__}: {error}")
    if isinstance(error, sdk.BotoCoreError):
        # The SDK could not even ask: no region, a profile that is not there.
        return Refused(_chained(error, f"cannot reach table {table!r}: {error}"))
    return Refused(error)


def from_error(response: Mapping[str, Any], table: str, error: Exception | None = None) -> Outcome:
    """What an error answer says of the request's fate."""
    code = response.get("Error", {}).get("Code", "")
    message = response.get("Error", {}).get("Message", "")
    status = response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
    if code == "ConditionalCheckFailedException":
        return ConditionFailed(response.get("Item") or None)
    if code == "TransactionCanceledException":
        return _cancelled(response)
    if code in _CONFLICTS:
        return Conflicted()
    if code in _THROTTLES:
        return _throttled(code, response)
    if code == "ResourceNotFoundException":
        return Refused(TableNotFound(f"there is no table {table!r} here: {message}"))
    if code in _DENIALS:
        return Refused(AccessDenied(f"not allowed on table {table!r}: {message}"))
    if code in _SKEWS:
        return Refused(ClockSkewed(f"the request's signature was refused: {message}"))
    if status >= 500 or code in ("InternalServerError", "ServiceUnavailable"):
        return Unreachable(f"{code or status}: {message}")
    return Refused(TableError(f"{code}: {message}") if error is None else _chained(error))


def _chained(error: Exception, message: str | None = None) -> TableError:
    refused = TableError(message or str(error))
    refused.__cause__ = error
    return refused


def _throttled(code: str, response: Mapping[str, Any]) -> Throttled:
    reasons = [str(r.get("reason", "")) for r in response.get("ThrottlingReasons") or ()]
    if reasons:
        return Throttled(", ".join(reasons), any(_OF_KEY in reason for reason in reasons))
    # Without reasons, this code is what a hot key gives; the others are the account's.
    return Throttled(code, code == "ProvisionedThroughputExceededException")


def _cancelled(response: Mapping[str, Any]) -> Outcome:
    reasons = response.get("CancellationReasons") or ()
    codes = {reason.get("Code") for reason in reasons}
    if "ConditionalCheckFailed" not in codes:
        if codes & {"ThrottlingError", "ProvisionedThroughputExceeded"}:
            return Throttled(
                "transaction throttled", of_key="ProvisionedThroughputExceeded" in codes
            )
        if "TransactionConflict" in codes:
            return Conflicted()
        if codes & {"ValidationError", "ItemCollectionSizeLimitExceeded"}:
            return Refused(TableError(str(response.get("Error", {}).get("Message", ""))))
    return TransactionFailed(
        tuple((str(reason.get("Code")), reason.get("Item") or None) for reason in reasons)
    )
