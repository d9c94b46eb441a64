from __future__ import annotations

import pytest

from tests.behaviour.backends import BACKENDS


@pytest.fixture(params=BACKENDS)
def backend(request):
    """Every behaviour is tested over each of these."""
    with BACKENDS[request.param](request) as opened:
        yield opened
        opened.close()


@pytest.fixture
def time(backend):
    return backend.time
