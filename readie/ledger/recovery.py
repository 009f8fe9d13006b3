"""What routers do to the ledger when a process may have died: leases, what the dead have taken or held."""

from collections.abc import Sequence
from typing import Final, cast

from readie.protocol import keys

from .ledger import Ledger

LONGEST_LEASE_SECONDS: Final = 600
"""Of a router; one that would last longer was given before Redis' clock was set back."""
SETTLING_SECONDS: Final = 3.0
"""A Redis that was started again may have lost its last moments. Workers tell it what they run, every two seconds."""


class RecoveryLedger(Ledger):
    """The ledger with what brings back the calls of the dead."""

    def renew_router(self, router: str, lease_seconds: int) -> None:
        """Renew a router's lease."""
        self._run("renew_router", [keys.ROUTERS], [router, lease_seconds])

    def give_back(self, router: str, *, only_if_dead: bool) -> int | None:
        """Put a router's taken items back on the submit queue and end its lease; ``None``: it lives, and keeps them."""
        count = self._run(
            "give_back",
            [keys.ROUTERS, keys.router_taken(router), keys.SUBMIT_QUEUE],
            [router, "1" if only_if_dead else "0", LONGEST_LEASE_SECONDS],
        )
        return cast("int | None", count)

    def dead_routers(self) -> list[str]:
        """Return the routers whose lease has ended, or lasts so long that Redis' clock must have been set back."""
        now = self.now()
        with self.redis.pipeline(transaction=False) as pipe:
            pipe.zrangebyscore(keys.ROUTERS, "-inf", now)
            pipe.zrangebyscore(keys.ROUTERS, now + LONGEST_LEASE_SECONDS, "+inf")
            return [item.decode() for reply in pipe.execute() for item in reply]

    def bound_leases(self) -> None:
        """Let no worker's lease last longer than it asked for, however Redis' clock was set."""
        self._run("bound_leases", [keys.WORKERS], [keys.worker("")])

    def settling_seconds(self) -> float:
        """Return how long workers may need to say what they run, after Redis was started again."""
        up = float(self.redis.info("server")["uptime_in_seconds"])
        if up >= SETTLING_SECONDS or not self.redis.zcard(keys.PENDING) or not self.redis.zcard(keys.WORKERS):
            return 0.0
        return SETTLING_SECONDS - up

    def incarnations(self, workers: Sequence[str] | None = None) -> dict[str, str | None]:
        """Return the living incarnation of each of these workers, or of all; ``None`` for one whose lease has ended."""
        if workers is None:
            workers = [item.decode() for item in cast("list[bytes]", self.redis.zrange(keys.WORKERS, 0, -1))]
        with self.redis.pipeline(transaction=False) as pipe:
            for worker in workers:
                pipe.hget(keys.worker(worker), "incarnation")
            replies = pipe.execute()
        return {worker: reply.decode() if reply else None for worker, reply in zip(workers, replies, strict=True)}

    def held_since(self, workers: Sequence[str], before: float) -> dict[str, list[str]]:
        """Return the calls that each worker was given before a time (Redis clock, seconds) and still holds."""
        with self.redis.pipeline(transaction=False) as pipe:
            for worker in workers:
                pipe.zrangebyscore(keys.worker_calls(worker), "-inf", before)
                pipe.zrangebyscore(keys.worker_session_calls(worker), "-inf", before)
            replies = pipe.execute()
        return {
            worker: [item.decode() for item in [*reply, *of_sessions]]
            for worker, reply, of_sessions in zip(workers, replies[::2], replies[1::2], strict=True)
        }

    def readmit(self, since: str, lost_after_seconds: int, most: int) -> tuple[str, list[str]]:
        """Send messages of queued calls again that are nowhere.

        Args:
            since: where to begin, ``"0"`` or what the last look returned.
            lost_after_seconds: how long a message may be under way.
            most: calls to look at.

        Returns:
            Where to begin next time, and the calls whose message was sent.
        """
        following, *call_ids = self._run(
            "readmit",
            [keys.PENDING, keys.WAITING, keys.SUBMIT_QUEUE],
            [since, lost_after_seconds, most],
        )
        return following.decode(), [call_id.decode() for call_id in call_ids]

    def drop_held(self, worker: str, call_id: str) -> None:
        """Free the slot of a call whose record is not one of ours."""
        self._run("drop_held", [], [worker, call_id])

    def now(self) -> float:
        """Return Redis' time, seconds since the epoch."""
        seconds, microseconds = self.redis.time()
        return seconds + microseconds / 1e6

    def forget_worker(self, name: str) -> bool:
        """Remove a worker that is gone, with its queue; ``False``: it came back, or calls of it are left."""
        return bool(
            self._run(
                "forget",
                [
                    keys.worker(name),
                    keys.WORKERS,
                    keys.worker_calls(name),
                    keys.worker_queue(name),
                    keys.worker_memory(name),
                ],
                [name],
            )
        )
