"""The limiter over HTTP, for callers that are not Python."""
