"""What a worker counts of its calls."""

from readie.protocol.envelope import CallState, Envelope, Report
from workers.counts import Tally


def test_the_rate_is_that_of_the_last_ten_whole_seconds() -> None:
    now = 100.0
    tally = Tally(lambda: now)
    restored = Envelope(id="a", state=CallState.DONE, report=Report(start="restored"))
    for _ in range(5):
        tally.ended(restored)
    tally.ended(Envelope(id="b", state=CallState.FAILED))
    assert tally.read() == ({"restored": 5}, {CallState.DONE: 5, CallState.FAILED: 1}, 0.0), "it is not over yet"
    now = 101.5
    for _ in range(4):
        tally.ended(restored)
    assert tally.read()[2] == 0.6
    now = 110.0
    assert tally.read()[2] == 1.0
    now = 111.0
    assert tally.read()[2] == 0.4
    now = 125.0
    tally.ended(restored)
    assert tally.read() == ({"restored": 10}, {CallState.DONE: 10, CallState.FAILED: 1}, 0.0)
