"""Opens, uses and closes sessions from many clients at once, and checks every answer.

``python benchmarks/many_sessions.py [--sessions 500] [--clients 20] [--calls 4] [--redis-url URL]``; a stack must run.
Each session gets a secret of its own with its first call; every later call returns what it finds there. Exit status 1
when a call failed or was answered from another sandbox, or when Redis still has something of a session that it should
not have.
"""

import argparse
import sys
import threading
import time
import uuid
from collections.abc import Iterator

from redis import Redis

from readie.client import Client
from readie.options import Options
from readie.protocol import keys
from readie.remote_function import RemoteFunction
from readie.sessions import Session


def _count(secret: str, number: int) -> tuple[str, int]:
    """Return the session's secret and how often it was called."""
    global kept, calls  # noqa: PLW0603
    if number == 0:
        kept, calls = secret, 0
    calls += 1
    return kept, calls


class Run:
    """What all clients do together. ``_left`` and ``problems`` are guarded by ``_lock``."""

    def __init__(self, redis_url: str, sessions: int, calls: int) -> None:
        self._redis_url = redis_url
        self._calls = calls
        self._lock = threading.Lock()
        self._left = sessions
        self.problems: list[str] = []

    def client(self) -> None:
        """Take sessions until there are none left."""
        client = Client(redis_url=self._redis_url)
        while self._take():
            try:
                self.problems.extend(self._use(client))
            except Exception as error:
                self.problems.append(repr(error))
        client.close()

    def _take(self) -> bool:
        with self._lock:
            self._left -= 1
            return self._left >= 0

    def _use(self, client: Client) -> Iterator[str]:
        secret = uuid.uuid4().hex
        session = Session(secret, Options(), idle_ttl=300, restart_on_loss=False, attached=False, client=client)
        count = RemoteFunction(_count, Options(session=session), client)
        for number in range(self._calls):
            answer = count(secret, number)
            if answer != (secret, number + 1):
                yield f"call {number + 1} of session {secret} was answered {answer}"
        if not session.close():
            yield f"session {secret} was not open when it was closed"


def left_over(redis: Redis) -> list[str]:
    """Return what Redis has of sessions beyond the records that say that they have ended."""
    patterns = ("readie:worker-sessions:*", "readie:worker-idle-sessions:*", "readie:worker-session-calls:*")
    found = [key.decode() for pattern in (*patterns, keys.session_calls("*")) for key in redis.scan_iter(pattern)]
    found += [key.decode() for key in redis.scan_iter(keys.session("*")) if redis.ttl(key) < 0]
    return found + [member.decode() for member in redis.zrange(keys.SESSIONS, 0, -1)]


def main() -> int:
    """Run all and print what came of it."""
    parser = argparse.ArgumentParser(description="Open, use and close sessions from many clients at once.")
    parser.add_argument("--sessions", type=int, default=500)
    parser.add_argument("--clients", type=int, default=20)
    parser.add_argument("--calls", type=int, default=4, help="in each session (default: 4)")
    parser.add_argument("--redis-url", default=None, help="default: the running local stack's")
    arguments = parser.parse_args()
    url = arguments.redis_url or Client().settings.redis_url
    run = Run(url, arguments.sessions, arguments.calls)
    began = time.perf_counter()
    threads = [threading.Thread(target=run.client) for _ in range(arguments.clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    seconds = time.perf_counter() - began
    problems = run.problems + [f"left over: {name}" for name in left_over(Redis.from_url(url))]
    for problem in problems[:20]:
        print(problem)
    calls = arguments.sessions * arguments.calls
    print(
        f"{arguments.sessions} sessions, {calls} calls, {arguments.clients} clients: {seconds:.1f} s, "
        f"{len(problems)} problems"
    )
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
