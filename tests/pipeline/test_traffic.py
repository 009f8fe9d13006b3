"""Counting sets of imports in a real Redis."""

import pytest
from redis import Redis
from redis.exceptions import ConnectionError as RedisConnectionError

from readie.protocol.call import ImportHints
from readie.traffic import TrafficCounter, counts, read_traffic
from tests.conftest import RedisServer


def hints(*imports: str) -> ImportHints:
    return ImportHints(imports=imports)


def test_calls_of_a_flavor_are_counted_by_what_they_import(redis: Redis) -> None:
    first, second = TrafficCounter(redis), TrafficCounter(redis)
    for counter in (first, second):
        counter.count("default", hints("pandas", "numpy"))
        counter.count("default", hints("numpy", "pandas", "numpy"))
        counter.count("default", hints())
        counter.count("other", hints('odd "name", with\nlines'))
        counter.flush()
        counter.flush()
    assert read_traffic(redis, "default") == {("numpy", "pandas"): 4.0, (): 2.0}
    assert read_traffic(redis, "other") == {('odd "name", with\nlines',): 2.0}
    assert read_traffic(redis, "nobody") == {}


def test_all_that_is_kept_expires(redis: Redis) -> None:
    counter = TrafficCounter(redis)
    counter.count("default", hints("numpy"))
    counter.flush()
    assert sorted(redis.keys("*")) == [b"readie:traffic-day:default", b"readie:traffic:default"]
    assert all(0 < redis.ttl(key) <= counts.UNUSED_SECONDS for key in redis.keys("*"))


def test_counts_fade_with_each_day_and_what_is_faded_goes(redis: Redis) -> None:
    counter = TrafficCounter(redis)
    for _ in range(10):
        counter.count("default", hints("numpy"))
    counter.count("default", hints("old"))
    counter.flush()
    day = int(redis.get("readie:traffic-day:default") or 0)
    redis.set("readie:traffic-day:default", day - 30)
    counter.count("default", hints("pandas"))
    counter.flush()
    faded = 10 * counts.KEPT_PER_DAY**30
    assert read_traffic(redis, "default") == pytest.approx({("numpy",): faded, ("pandas",): 1.0})
    assert int(redis.get("readie:traffic-day:default") or 0) == day

    counter.count("default", hints("pandas"))
    counter.flush()
    assert read_traffic(redis, "default")[("numpy",)] == pytest.approx(faded), "lowered twice on one day"


def test_a_clock_that_is_set_back_raises_no_count(redis: Redis) -> None:
    counter = TrafficCounter(redis)
    counter.count("default", hints("numpy"))
    counter.flush()
    day = int(redis.get("readie:traffic-day:default") or 0)
    redis.set("readie:traffic-day:default", day + 5)
    counter.count("default", hints("numpy"))
    counter.flush()
    assert read_traffic(redis, "default") == {("numpy",): 2.0}


def test_the_most_frequent_sets_stay_when_there_are_too_many(redis: Redis, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(counts, "MOST_SETS", 40)
    counter = TrafficCounter(redis)
    for number in range(100):
        for _ in range(5 if number < 20 else 1):
            counter.count("default", hints(f"module{number}"))
        if number % 10 == 9:
            counter.flush()
            assert len(read_traffic(redis, "default")) <= 50
    kept = read_traffic(redis, "default")
    assert {(f"module{number}",) for number in range(20)} <= kept.keys()


def test_what_is_too_large_or_too_much_is_not_kept(redis: Redis, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(counts, "_MOST_HELD", 3)
    counter = TrafficCounter(redis)
    counter.count("default", hints("x" * 5000))
    for number in range(10):
        counter.count("default", hints(f"module{number}"))
    counter.flush()
    assert sorted(read_traffic(redis, "default")) == [("module0",), ("module1",), ("module2",)]


def test_what_could_not_be_sent_is_sent_the_next_time(redis_server: RedisServer, redis: Redis) -> None:
    lost = TrafficCounter(Redis(port=1, socket_connect_timeout=1))
    lost.count("default", hints("numpy"))
    with pytest.raises(RedisConnectionError):
        lost.flush()
    lost._script = TrafficCounter(redis)._script
    lost.flush()
    assert read_traffic(redis, "default") == {("numpy",): 1.0}
