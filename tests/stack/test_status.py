"""What ``readie status`` makes of the things it finds in Redis."""

from redis import Redis

from readie.ledger import Ledger
from readie.protocol import keys
from readie.protocol.announcement import Announcement
from readie.stack.overview import PartOverview, RedisOverview, RouterOverview, StackOverview, WorkerOverview, judge
from tests.local_stack import LocalStack

WORKER = Announcement(
    name="worker1@a-machine-in-a-cloud-with-a-name-that-nobody-would-ever-type.internal.example.com",
    incarnation="1",
    pid=4_194_303,
    slots=64,
    flavor="machine-learning-with-gpu",
    python="3.11",
    runsc_version="release-20260224.0",
    generation="20261129T210835-1f0c3a9b5d7e",
    catalogue=None,
    checkpoints=tuple(f"checkpoint_{number}" for number in range(16)),
)


def announce(redis: Redis) -> None:
    Ledger(redis).announce(WORKER, 60)
    redis.zadd(keys.worker_calls(WORKER.name), {"call-1": 1, "call-2": 2})
    redis.zadd(keys.ROUTERS, {"router-1": redis.time()[0] + 60, "router-dead": redis.time()[0] - 60})
    redis.zadd(keys.PENDING, {"call-1": 1, "call-2": 2, "call-3": 3})
    redis.zadd(keys.WAITING, {"call-3": 3})
    redis.lpush(keys.SUBMIT_QUEUE, "a", "b", "c", "d")


def test_workers_routers_and_calls_are_shown(stack: LocalStack, redis: Redis, redis_url: str) -> None:
    announce(redis)
    stack.environment["READIE_REDIS_URL"] = redis_url
    status = stack.status()
    assert status["state"] == "running"
    assert status["stack"] is None
    assert [router["id"] for router in status["routers"]] == ["router-1"]
    assert status["calls"] == {
        "pending": 3,
        "waiting": 1,
        "submitted": 4,
        "delayed": 0,
        "sessions": 0,
        "dead_letters": 0,
        "stale": 0,
        "forged": 0,
    }
    assert status["workers"] == [
        {
            "name": WORKER.name,
            "pid": WORKER.pid,
            "draining": False,
            "slots": 64,
            "busy": 2,
            "flavor": WORKER.flavor,
            "python": "3.11",
            "runsc_version": WORKER.runsc_version,
            "generation": WORKER.generation,
            "catalogue": None,
            "checkpoints": list(WORKER.checkpoints),
            "memory_bytes": None,
            "reserved_bytes": 0,
            "sessions": 0,
            "max_sessions": 1000,
            "ready": {},
            "avoided": [],
            "counts": None,
        }
    ]


def test_the_table_fits_80_columns_and_loses_nothing(stack: LocalStack, redis: Redis, redis_url: str) -> None:
    announce(redis)
    stack.environment["READIE_REDIS_URL"] = redis_url
    shown = stack.run("status").stdout
    assert max(len(line) for line in shown.splitlines()) <= 80
    assert "2/64" in shown
    assert "…" not in shown


def test_help_fits_80_columns(stack: LocalStack) -> None:
    for command in ([], ["up"], ["down"], ["status"]):
        shown = stack.run(*command, "--help").stdout
        assert max(len(line) for line in shown.splitlines()) <= 80


def test_an_unreadable_worker_hides_no_other(stack: LocalStack, redis: Redis, redis_url: str) -> None:
    announce(redis)
    redis.hset(keys.worker("of-the-future"), "announcement", '{"name": 5}')
    redis.zadd(keys.WORKERS, {"of-the-future": redis.time()[0] + 60, "gone": redis.time()[0] + 60})
    stack.environment["READIE_REDIS_URL"] = redis_url
    assert [worker["name"] for worker in stack.status()["workers"]] == [WORKER.name]


def test_a_redis_that_does_not_answer_is_shown_without_its_password(stack: LocalStack) -> None:
    stack.environment["READIE_REDIS_URL"] = "redis://user:hidden@127.0.0.1:1/0"
    done = stack.run("status")
    assert done.returncode == 1
    assert "does not answer" in done.stdout
    assert "hidden" not in done.stdout + done.stderr
    status = stack.status()
    assert status["redis"]["url"] == "redis://user:***@127.0.0.1:1/0"
    assert status["redis"]["error"]


def test_a_redis_without_router_and_worker_is_not_a_running_cluster(
    stack: LocalStack, redis: Redis, redis_url: str
) -> None:
    stack.environment["READIE_REDIS_URL"] = redis_url
    assert stack.run("status").returncode == 3


def part(name: str, *, running: bool = True) -> PartOverview:
    return PartOverview(name=name, role=name.rstrip("0123456789"), pid=1, running=running, restarts=0, failure=None)


def local(*parts: PartOverview, supervisor: bool = True, phase: str = "running") -> StackOverview:
    return StackOverview(version="1", phase=phase, supervisor_pid=1, supervisor_running=supervisor, parts=parts)


REDIS = RedisOverview(url="redis://x")
DEAD_REDIS = RedisOverview(url="redis://x", error="refused")
ROUTERS = (RouterOverview(id="r", lease_seconds=1),)
WORKERS = (
    WorkerOverview(
        name="w", pid=1, slots=1, busy=0, flavor="f", python="3", runsc_version="r", generation=None, checkpoints=()
    ),
)
ALL = (part("redis"), part("router"), part("worker1"))


def test_a_stack_runs_when_every_part_runs_and_redis_knows_of_it() -> None:
    def said(stack: StackOverview | None, redis: RedisOverview = REDIS, routers=ROUTERS, workers=WORKERS) -> str:
        return judge(stack, redis, routers, workers, redis_configured=False)

    assert said(local(*ALL)) == "running"
    assert said(local(*ALL), workers=()) == "degraded"
    assert said(local(*ALL), routers=()) == "degraded"
    assert said(local(*ALL), DEAD_REDIS, (), ()) == "degraded"
    assert said(local(*ALL, part("worker2", running=False))) == "degraded"
    assert said(local(*ALL, supervisor=False)) == "degraded"
    assert said(local(*(part(one.name, running=False) for one in ALL), supervisor=False)) == "stopped"
    assert said(local(part("redis"), phase="starting"), REDIS, (), ()) == "starting"
    assert said(None) == "running"
    assert said(None, workers=()) == "degraded"
    assert said(None, DEAD_REDIS, (), ()) == "stopped"
