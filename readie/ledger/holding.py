"""What only workers do to the ledger: compare what they hold there with what they run."""

from typing import NamedTuple, cast

from readie.protocol import keys
from readie.protocol.envelope import CallState

from .ledger import Ledger


class Held(NamedTuple):
    """A call that a worker holds."""

    call_id: str
    attempt: int
    state: CallState
    incarnation: str


class HoldingLedger(Ledger):
    """The ledger with the operations of a worker that looks after its calls."""

    def uphold(self, call_id: str, attempt: int, worker: str, incarnation: str) -> bool:
        """Say that ``worker`` runs an attempt; ``False``: it is not, or no longer, its to run."""
        return bool(self._run("uphold", [keys.call(call_id)], [call_id, attempt, incarnation, worker]))

    def held(self, worker: str) -> list[Held]:
        """Return the calls on a worker's slots that have not ended."""
        call_ids = [
            member.decode() for member in cast("list[bytes]", self.redis.zrange(keys.worker_calls(worker), 0, -1))
        ]
        with self.redis.pipeline(transaction=False) as pipe:
            for call_id in call_ids:
                pipe.hmget(keys.call(call_id), ["attempt", "state", "incarnation"])
            records = pipe.execute(raise_on_error=False)
        return [
            Held(call_id, int(record[0]), CallState(record[1].decode()), record[2].decode())
            for call_id, record in zip(call_ids, records, strict=True)
            if isinstance(record, list) and all(record) and not CallState(record[1].decode()).ended
        ]

    def queue(self, worker: str) -> list[bytes]:
        """Return the messages on a worker's own queue."""
        return cast("list[bytes]", self.redis.lrange(keys.worker_queue(worker), 0, -1))

    def run_id(self) -> str:
        """Return what changes whenever Redis is started again."""
        return str(self.redis.info("server")["run_id"])
