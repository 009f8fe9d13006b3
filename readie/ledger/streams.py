"""What a call prints and yields while it runs: written by its worker, read by clients."""

from dataclasses import dataclass
from typing import Final, cast

from redis.exceptions import ResponseError

from readie.protocol import keys
from readie.protocol.envelope import CallState
from readie.protocol.payload import Buffer

from .ledger import PAYLOAD_SECONDS, Cancelled, Ledger

WINDOW_VALUES: Final = 32
WINDOW_BYTES: Final = 4 << 20
"""A call yields no further while so many of its values, or so many bytes of them, wait to be taken."""
_MOST_TAKEN: Final = WINDOW_VALUES // 2
"""Values that a reader gets at once: while it works on these, the function can go on with the other half."""
_MOST_ENTRIES: Final = 64


@dataclass(frozen=True, slots=True)
class Progress:
    """How far the reader of a call's values is."""

    taken: int
    taken_bytes: int
    stop: bool
    """No more values are wanted."""
    reader_lives: bool = True
    """Whether the reader's client is connected to Redis."""


@dataclass(frozen=True, slots=True)
class Position:
    """Where a reader is in a call's values."""

    attempt: str
    taken: int
    taken_bytes: int


@dataclass(frozen=True, slots=True)
class Taken:
    """The next values."""

    state: CallState | None
    """The call's; ``None``: there is no record of it."""
    position: Position
    """Where the values begin."""
    values: list[bytes]


@dataclass(frozen=True, slots=True)
class Printed:
    """A part of a call's output."""

    state: CallState | None
    """The call's; ``None``: there is no record of it."""
    total_bytes: int
    """Length of all output until now."""
    pieces: list[tuple[int, bytes]]
    """In order, each with the number of bytes before it."""


class StreamRestartedError(Exception):
    """Another attempt of the call has begun after values of an earlier one were taken."""


class ValuesLostError(Exception):
    """Redis has lost values that were not taken, as one that is killed may lose what it was told last."""


class ReadElsewhereError(Exception):
    """Another reader takes the call's values."""


class StreamLedger(Ledger):
    """The ledger with the operations on calls' streams."""

    def publish_output(self, call_id: str, attempt: int, before_bytes: int, output: bytes, keep_bytes: int) -> bool:
        """Append to a call's output; ``False`` when the attempt is not, or no longer, the one that runs.

        Args:
            before_bytes: what the attempt has printed before.
            keep_bytes: how much of the end of all output is kept.
        """
        return bool(
            self._run(
                "publish_output",
                [keys.call(call_id), keys.output(call_id)],
                [call_id, attempt, before_bytes, output, keep_bytes, PAYLOAD_SECONDS],
            )
        )

    def publish_value(
        self, call_id: str, attempt: int, number: int, value: Buffer, total_bytes: int
    ) -> Progress | None:
        """Append to a call's values; ``None`` when the attempt is not, or no longer, the one that runs.

        Args:
            number: of the value in its attempt, from 1.
            total_bytes: of all values of the attempt, this one included.
        """
        answer = self._run(
            "publish_value",
            [keys.call(call_id), keys.values(call_id)],
            [
                call_id,
                attempt,
                number,
                memoryview(value),
                total_bytes,
                WINDOW_VALUES,
                WINDOW_BYTES,
                PAYLOAD_SECONDS,
            ],
        )
        return None if answer is None else Progress(int(answer[0]), int(answer[1]), bool(answer[2]))

    def look_at_reader(self, call_id: str, attempt: int, yielded: int, yielded_bytes: int) -> Progress | None:
        """Return how far the reader is; ``None`` when the attempt is not, or no longer, the one that runs."""
        answer = self._run(
            "look_at_reader",
            [keys.call(call_id)],
            [attempt, yielded, yielded_bytes, WINDOW_VALUES, WINDOW_BYTES],
        )
        if answer is None:
            return None
        return Progress(int(answer[0]), int(answer[1]), bool(answer[2]), reader_lives=bool(answer[3]))

    def take_values(
        self, call_id: str, client: str, known: Position | None = None, now: Position | None = None
    ) -> Taken:
        """Say how many values were taken, and get the next ones, or be told when there are some.

        Args:
            client: whom to tell, on the channel ``keys.replies(client)``.
            known: where the last values began; ``None`` begins where the last reader stopped.
            now: where the reader is, ``known`` unless it has taken some.

        Raises:
            StreamRestartedError: the call runs again, after values were taken.
            ReadElsewhereError: somebody else reads.
            ValuesLostError: values are missing.
        """
        known = known or Position("", 0, 0)
        now = now or known
        try:
            state, attempt, taken, taken_bytes, entries = self._run(
                "take_values",
                [keys.call(call_id), keys.values(call_id)],
                [call_id, client, known.attempt, known.taken, now.taken, now.taken_bytes, _MOST_TAKEN],
            )
        except ResponseError as error:
            if str(error).startswith("RESTARTED"):
                raise StreamRestartedError from error
            if str(error).startswith("ELSEWHERE"):
                raise ReadElsewhereError from error
            raise
        position = Position(attempt.decode(), int(taken), int(taken_bytes))
        for number, (name, _) in enumerate(entries, position.taken + 1):
            if name.decode() != f"{position.attempt}-{number}":
                raise ValuesLostError
        return Taken(CallState(state.decode()) if state else None, position, [fields[1] for _, fields in entries])

    def stop_values(self, call_id: str) -> None:
        """Have a call end whose values nobody wants any more: at once if it has not begun, else at its next yield."""
        while self.cancel(call_id, stop_running=False) is Cancelled.RUNNING:
            state = cast("bytes", self._run("stop_values", [keys.call(call_id)], [call_id]))
            # Unless it was given back to the queue meanwhile.
            if state not in (b"queued", b"placed"):
                return

    def read_output(self, call_id: str, offset: int, listener: str | None) -> Printed:
        """Return a part of a call's output.

        Args:
            offset: bytes that are known already.
            listener: whom to tell, on the channel ``keys.replies(listener)``, when there is more than nothing.
        """
        state, total, entries = self._run(
            "read_output",
            [keys.call(call_id)],
            [offset, _MOST_ENTRIES, listener or "", call_id],
        )
        return Printed(
            CallState(state.decode()) if state else None,
            int(total),
            [_piece(name, fields[1], offset) for name, fields in entries],
        )


def _piece(name: bytes, data: bytes, offset: int) -> tuple[int, bytes]:
    before = int(name.partition(b"-")[0]) - len(data)
    known = max(0, offset - before)
    return before + known, data[known:]
