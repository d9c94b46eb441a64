from __future__ import annotations

import threading

from headgate.cache import Bounded


def test_it_holds_no_more_than_its_bound_and_forgets_the_oldest():
    cache = Bounded(3)
    for number in range(10):
        cache.put(number, str(number))
        assert len(cache) <= 3
    assert list(cache) == [7, 8, 9]
    assert cache.get(6) is None
    assert cache.get(7) == "7"


def test_what_is_used_stays():
    cache = Bounded(3)
    for number in range(3):
        cache.put(number, number + 1)
    cache.get(0)
    cache.put(3, 4)
    assert list(cache) == [2, 0, 3]


def test_putting_again_replaces_and_renews():
    cache = Bounded(2)
    cache.put("a", 1)
    cache.put("b", 2)
    cache.put("a", 3)
    cache.put("c", 4)
    assert cache.get("a") == 3
    assert cache.get("b") is None


def test_what_is_popped_or_cleared_is_gone():
    cache = Bounded(5)
    cache.put("a", 1)
    cache.put("b", 2)
    cache.pop("a")
    cache.pop("never there")
    assert list(cache) == ["b"]
    cache.clear()
    assert len(cache) == 0


def test_threads_share_it():
    cache = Bounded(50)
    errors = []
    start = threading.Barrier(4)

    def work(seed):
        start.wait()
        try:
            for number in range(2_000):
                cache.put((seed, number % 70), number)
                cache.get((seed, (number * 7) % 70))
                cache.pop((seed, (number * 3) % 70))
                list(cache)
        except Exception as error:  # noqa: BLE001 - shown below
            errors.append(error)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert len(cache) <= 50
