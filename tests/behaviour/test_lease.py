"""A lease: tokens are taken on entry, corrected inside, and given back when it fails."""

from __future__ import annotations

import asyncio

import pytest

from headgate import Limit, RateLimitExceeded, ValidationError

RPM = Limit.per_minute("rpm", 10)
TPM = Limit.per_minute("tpm", 1_000)
BOTH = {"rpm": 1, "tpm": 100}


@pytest.fixture
def limiter(backend):
    return backend.limiter(limits=[RPM, TPM])


def left(limiter, entity="alice"):
    return limiter.available(entity, "gpt-4")


def test_leaving_normally_keeps_what_was_taken(limiter):
    with limiter.acquire("alice", "gpt-4", BOTH) as lease:
        assert lease.consumed == BOTH
    assert left(limiter) == {"rpm": 9, "tpm": 900}


def test_tokens_are_taken_on_entry(backend, limiter):
    with limiter.acquire("alice", "gpt-4", BOTH):
        assert left(backend.limiter(limits=[RPM, TPM])) == {"rpm": 9, "tpm": 900}


@pytest.mark.parametrize(
    "error", [ValueError, SystemExit, KeyboardInterrupt, GeneratorExit, asyncio.CancelledError]
)
def test_leaving_by_an_exception_of_any_kind_gives_everything_back(limiter, error):
    with pytest.raises(error), limiter.acquire("alice", "gpt-4", BOTH) as lease:
        lease.consume(tpm=50)
        lease.adjust(tpm=25)
        raise error
    assert left(limiter) == {"rpm": 10, "tpm": 1000}
    assert lease.consumed.get("tpm", 0) == 0


def test_an_exception_gives_back_only_what_is_still_held(limiter):
    with pytest.raises(ValueError, match="late"), limiter.acquire("alice", "gpt-4", BOTH) as lease:
        lease.release(tpm=40)
        raise ValueError("late")
    assert left(limiter) == {"rpm": 10, "tpm": 1000}


def test_adjust_takes_more_without_asking_and_may_go_into_debt(limiter, time):
    with limiter.acquire("alice", "gpt-4", BOTH) as lease:
        assert lease.adjust(tpm=1900) is True
        assert lease.consumed == {"rpm": 1, "tpm": 2000}
    assert left(limiter) == {"rpm": 9, "tpm": -1000}
    time.advance(60)
    assert left(limiter)["tpm"] == 0
    time.advance(60)
    assert left(limiter)["tpm"] == 1000


def test_a_debt_is_repaid_before_anything_is_admitted(limiter, time):
    with limiter.acquire("alice", "gpt-4", BOTH) as lease:
        lease.adjust(tpm=1900)
    with pytest.raises(RateLimitExceeded) as caught, limiter.acquire("alice", "gpt-4", {"tpm": 1}):
        pass
    assert caught.value.retry_after == 60.06
    time.advance(60.06)
    with limiter.acquire("alice", "gpt-4", {"tpm": 1}):
        pass


def test_a_debt_of_one_limit_does_not_hold_up_another(backend, limiter):
    # The other client knows the bucket from before the debt.
    other = backend.limiter(limits=[RPM, TPM])
    with other.acquire("alice", "gpt-4", {"rpm": 1}):
        pass
    with limiter.acquire("alice", "gpt-4", BOTH) as lease:
        lease.adjust(tpm=1900)
    with other.acquire("alice", "gpt-4", {"rpm": 1}):
        pass
    with limiter.acquire("alice", "gpt-4", {"rpm": 1}):
        pass
    assert left(limiter) == {"rpm": 6, "tpm": -1000}


def test_adjust_down_gives_back_what_was_not_used(limiter):
    with limiter.acquire("alice", "gpt-4", BOTH) as lease:
        assert lease.adjust(tpm=-60) is True
        assert lease.consumed == {"rpm": 1, "tpm": 40}
    assert left(limiter) == {"rpm": 9, "tpm": 960}


def test_adjust_by_nothing_sends_nothing(limiter):
    with limiter.acquire("alice", "gpt-4", BOTH) as lease, limiter.sending() as sent:
        assert lease.adjust(tpm=0) is True
        assert lease.adjust() is True
    assert sent == []


def test_adjust_of_an_idle_full_bucket_is_not_paid_from_what_overflowed(limiter, time):
    with limiter.acquire("alice", "gpt-4", BOTH) as lease:
        pass
    time.advance(3600)
    lease.adjust(tpm=300)
    assert left(limiter)["tpm"] == 700


def test_adjust_still_counts_after_the_lease_was_left(limiter):
    with limiter.acquire("alice", "gpt-4", BOTH) as lease:
        pass
    lease.adjust(tpm=100)
    assert left(limiter)["tpm"] == 800


def test_release_gives_back_some_or_all(limiter):
    with limiter.acquire("alice", "gpt-4", BOTH) as lease:
        assert lease.release(tpm=30) is True
        assert lease.consumed == {"rpm": 1, "tpm": 70}
        assert left(limiter) == {"rpm": 9, "tpm": 930}
        lease.release()
        assert left(limiter) == {"rpm": 10, "tpm": 1000}
        lease.release()
    assert left(limiter) == {"rpm": 10, "tpm": 1000}


def test_release_above_the_capacity_admits_no_more_than_the_capacity(limiter, time):
    with limiter.acquire("alice", "gpt-4", {"rpm": 10}) as lease:
        pass
    time.advance(60)
    lease.release()
    assert left(limiter)["rpm"] == 10
    with limiter.acquire("alice", "gpt-4", {"rpm": 10}):
        pass
    with pytest.raises(RateLimitExceeded), limiter.acquire("alice", "gpt-4", {"rpm": 1}):
        pass


def test_a_release_is_admitted_at_once_by_the_client_that_made_it(limiter):
    with limiter.acquire("alice", "gpt-4", {"rpm": 10}) as lease:
        pass
    with pytest.raises(RateLimitExceeded), limiter.acquire("alice", "gpt-4", {"rpm": 1}):
        pass
    lease.release(rpm=1)
    with limiter.acquire("alice", "gpt-4", {"rpm": 1}):
        pass


def test_more_than_is_held_cannot_be_given_back(limiter):
    with limiter.acquire("alice", "gpt-4", BOTH) as lease, limiter.sending() as sent:
        with pytest.raises(ValidationError, match=r"101.*holds 100"):
            lease.release(tpm=101)
        with pytest.raises(ValidationError, match=r"101.*holds 100"):
            lease.adjust(tpm=-101)
    assert sent == []


def test_consume_in_a_lease_is_conditional(limiter):
    with limiter.acquire("alice", "gpt-4", BOTH) as lease:
        lease.consume(tpm=500)
        assert lease.consumed == {"rpm": 1, "tpm": 600}
        with pytest.raises(RateLimitExceeded) as caught:
            lease.consume(rpm=1, tpm=500)
        assert caught.value.violations[0].available == 400
        assert lease.consumed == {"rpm": 1, "tpm": 600}
    assert left(limiter) == {"rpm": 9, "tpm": 400}


def test_consume_takes_from_limits_that_the_acquire_did_not_name(limiter):
    with limiter.acquire("alice", "gpt-4", {"rpm": 1}) as lease:
        lease.consume(tpm=10)
        lease.adjust(tpm=5)
    assert lease.consumed == {"rpm": 1, "tpm": 15}
    assert left(limiter) == {"rpm": 9, "tpm": 985}


@pytest.mark.parametrize("method", ["adjust", "consume", "release"])
@pytest.mark.parametrize(
    "amounts", [{"tpm": 0.0123}, {"tpm": "1"}, {"tpm": True}, {"tmp": 1}, {"tpm": 10**13}]
)
def test_amounts_that_can_never_be_right_are_refused_and_nothing_is_sent(limiter, method, amounts):
    with limiter.acquire("alice", "gpt-4", BOTH) as lease:
        with limiter.sending() as sent, pytest.raises(ValidationError):
            getattr(lease, method)(**amounts)
        assert sent == []
    assert lease.consumed == BOTH
    assert left(limiter) == {"rpm": 9, "tpm": 900}


def test_a_lease_shows_every_limit_as_its_last_write_left_it(limiter):
    with limiter.acquire("alice", "gpt-4", BOTH) as lease:
        assert {s.name: s.available for s in lease.limits} == {"rpm": 9, "tpm": 900}
        lease.adjust(tpm=100)
        assert {s.name: s.available for s in lease.limits} == {"rpm": 9, "tpm": 800}
        assert lease.headers()["RateLimit"].startswith('"rpm";r=9;t=7, "tpm";r=800')
        assert "Retry-After" not in lease.headers()


def test_an_adjustment_that_is_lost_is_told_and_never_raised(backend, caplog):
    events = []
    limiter = backend.limiter(limits=[RPM, TPM], on_event=events.append)
    with limiter.acquire("alice", "gpt-4", BOTH) as lease:
        limiter.cut()
        assert lease.adjust(tpm=10) is False
        assert lease.release(tpm=10) is False
        limiter.mend()
    assert [event.name for event in events] == ["admitted", "adjust_lost", "release_lost"]
    assert "alice" not in caplog.text
    assert left(limiter) == {"rpm": 9, "tpm": 900}


def test_an_outage_does_not_hide_the_error_that_ends_a_lease(limiter):
    with pytest.raises(KeyError), limiter.acquire("alice", "gpt-4", BOTH):
        limiter.cut()
        raise KeyError("mine")


def test_a_decorated_function_takes_on_every_call(limiter):
    def call_model(prompt, *, loud=False):
        """Asks the model."""
        return prompt.upper() if loud else prompt

    limited = limiter.decorated(call_model, "alice", "gpt-4", {"rpm": 4})
    assert limited.__name__ == "call_model"
    assert limited.__doc__ == "Asks the model."
    assert limited("hi") == "hi"
    assert limited("hi", loud=True) == "HI"
    with pytest.raises(RateLimitExceeded):
        limited("hi")
    assert left(limiter)["rpm"] == 2


def test_a_decorated_function_that_fails_gives_back(limiter):
    def fail():
        raise ZeroDivisionError

    limited = limiter.decorated(fail, "alice", "gpt-4", {"rpm": 4})
    for _ in range(5):
        with pytest.raises(ZeroDivisionError):
            limited()
    assert left(limiter)["rpm"] == 10


def test_a_decorators_entity_and_amounts_may_depend_on_the_call(limiter):
    limited = limiter.decorated(
        lambda user, prompt, size=1: f"{user}: {prompt}",
        lambda user, *_, **__: user,
        "gpt-4",
        lambda _user, prompt, size=1: {"tpm": len(prompt) * size},
    )
    assert limited("alice", "12345") == "alice: 12345"
    assert limited("bob", "123", size=2) == "bob: 123"
    assert left(limiter, "alice")["tpm"] == 995
    assert left(limiter, "bob")["tpm"] == 994


def test_a_function_of_the_call_has_no_place_in_a_with_block(limiter):
    with (
        limiter.sending() as sent,
        pytest.raises(ValidationError, match="decorating"),
        limiter.acquire(lambda user: user, "gpt-4", {"rpm": 1}),
    ):
        pass
    assert sent == []


def test_one_acquisition_serves_many_calls_one_after_the_other(limiter):
    acquisition = limiter.acquire("alice", "gpt-4", {"rpm": 1})
    for _ in range(3):
        with acquisition:
            pass
    assert left(limiter)["rpm"] == 7


def test_one_acquisition_may_be_entered_again_inside_itself(limiter):
    acquisition = limiter.acquire("alice", "gpt-4", {"rpm": 1})
    with pytest.raises(KeyError), acquisition as outer:
        outer.consume(rpm=2)
        with acquisition:
            assert left(limiter)["rpm"] == 6
        raise KeyError
    assert left(limiter)["rpm"] == 9
