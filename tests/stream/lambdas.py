"""Functions as Lambda runs them: their environment, and the context of an invocation."""

from __future__ import annotations

import os
from dataclasses import dataclass

# Read by Powertools when a handler's module is imported.
os.environ.setdefault("POWERTOOLS_METRICS_NAMESPACE", "Headgate")
os.environ.setdefault("POWERTOOLS_SERVICE_NAME", "tests")
os.environ.setdefault("POWERTOOLS_TRACE_DISABLED", "true")
os.environ.setdefault("POWERTOOLS_LOG_LEVEL", "CRITICAL")


@dataclass
class Context:
    """An invocation with so much time left."""

    left: int = 60_000
    function_name: str = "function"
    memory_limit_in_mb: int = 256
    invoked_function_arn: str = "arn:aws:lambda:us-east-1:000000000000:function:function"
    aws_request_id: str = "00000000-0000-0000-0000-000000000000"

    def get_remaining_time_in_millis(self):
        return self.left
