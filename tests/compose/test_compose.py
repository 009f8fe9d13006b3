"""What compose.yaml promises, from a clean checkout on."""

import json
import subprocess

import pytest
import yaml
from compose_project import Project

from tests.conftest import ROOT
from tests.local_stack import eventually
from tests.system.code_blocks import compose_commands

# Images are built, packages installed and checkpoints captured in the first ones.
pytestmark = pytest.mark.timeout(600)

REPLICAS = ["worker1@compose", "worker2@compose"]


def test_the_first_call_needs_no_generation(project: Project) -> None:
    told = project.call("mean")
    (generation,) = project.containers("generation")
    assert generation["State"]["Status"] == "running", "it was captured before the call; the test has shown nothing"
    assert told["value"] == 3.0
    assert told["start"] == "cold"


def test_workers_take_up_the_generation_when_it_is_there(project: Project) -> None:
    eventually(lambda: project.containers("generation")[0]["State"]["Status"] == "exited", "captured", seconds=400)
    (generation,) = project.containers("generation")
    assert generation["State"]["ExitCode"] == 0, project.compose("logs", "generation")
    eventually(lambda: all(answer["generation"] for answer in project.inspect("checkpoints").values()), "taken up")
    told = project.call("mean")
    assert told["value"] == 3.0
    assert told["start"] == "restored"


def test_replicas_have_names_of_their_own(project: Project) -> None:
    status = json.loads(project.compose("exec", "--no-TTY", "router", "readie", "status", "--json"))
    assert [worker["name"] for worker in status["workers"]] == REPLICAS
    assert len(status["routers"]) == 2
    assert status["state"] == "running"


def test_celery_tells_of_sandboxes_pools_and_checkpoints(project: Project) -> None:
    for checkpoints in project.inspect("checkpoints").values():
        assert ["numpy", "pandas"] in [one["imports"] for one in checkpoints["checkpoints"]]
    eventually(lambda: any(pools["ready"].get("checkpoint_1") for pools in project.inspect("pools").values()), "ready")
    states = {one["state"] for sandboxes in project.inspect("sandboxes").values() for one in sandboxes}
    assert {"created", "ready"} <= states


def test_the_memory_of_sandboxes_is_bounded(project: Project) -> None:
    log = project.compose("logs", "worker")
    assert "memory, CPU and processes of a sandbox are bounded by control groups" in log


def test_no_more_rights_are_given_than_needed(project: Project) -> None:
    for service in ("router", "flower"):
        assert project.compose("exec", "--no-TTY", service, "id", "-u").strip() not in {"", "0"}
    for container in project.containers("worker"):
        assert not container["HostConfig"]["Privileged"]
        added = {name.removeprefix("CAP_") for name in container["HostConfig"]["CapAdd"]}
        assert added == {"SYS_ADMIN", "SYS_PTRACE"}


def test_no_port_is_open_to_others_and_none_is_without_a_password(project: Project) -> None:
    bound = {
        (name, binding["HostIp"])
        for service in ("redis", "router", "worker", "flower")
        for container in project.containers(service)
        for name, bindings in container["NetworkSettings"]["Ports"].items()
        for binding in bindings or ()
    }
    assert bound == {("5555/tcp", "127.0.0.1")}
    assert project.flower_status("/") == 401
    assert project.flower_status("/api/tasks", "readie") == 401
    assert "NOAUTH" in project.compose("exec", "--no-TTY", "redis", "redis-cli", "ping")


def test_prometheus_would_find_the_metrics_of_every_replica(project: Project) -> None:
    jobs = yaml.safe_load((ROOT / "deploy" / "prometheus" / "prometheus.yml").read_text())["scrape_configs"]
    asked = [(name, found["port"]) for job in jobs for found in job["dns_sd_configs"] for name in found["names"]]
    code = (
        "import socket, urllib.request as u\n"
        f"for name, port in {asked}:\n"
        "    for *_, (host, _) in socket.getaddrinfo(name, port, socket.AF_INET, socket.SOCK_STREAM):\n"
        "        text = u.urlopen(f'http://{host}:{port}/metrics', timeout=10).read().decode()\n"
        "        print(name, f'readie_{name}_' in text)\n"
    )
    told = project.compose("run", "--rm", "--no-TTY", "client", "python", "-c", code).splitlines()
    assert sorted(told) == ["router True", "router True", "worker True", "worker True"]


def test_flower_shows_calls_by_function_with_the_users_error_and_no_arguments(project: Project) -> None:
    told = project.call("fail")
    eventually(lambda: project.flower("/api/tasks").get(told["id"], {}).get("failed"), "Flower has heard of its end")
    task = project.flower("/api/tasks")[told["id"]]
    assert task["name"] == "fail"
    assert task["state"] == "FAILURE"
    assert task["worker"] == told["worker"]
    assert task["exception"] == "ValueError: as it should"
    assert "in fail\nValueError: as it should" in task["traceback"]
    assert "password of the caller" not in json.dumps(task)
    done = [task for task in project.flower("/api/tasks").values() if task["name"] == "mean"]
    assert {task["state"] for task in done} == {"SUCCESS"}
    assert all(task["runtime"] > 0 for task in done)
    assert any("restored from checkpoint_1" in task["result"] for task in done)


def test_flower_knows_after_a_restart_what_it_knew_before(project: Project) -> None:
    before = set(project.flower("/api/tasks"))
    project.compose("restart", "flower")
    eventually(lambda: project.healthy("flower"), "it is back")
    assert before <= set(project.flower("/api/tasks"))


def test_a_killed_worker_ends_its_call_and_comes_back_under_its_name(project: Project) -> None:
    with project.client("forever") as client:
        assert client.stdout is not None
        call_id = json.loads(client.stdout.readline())["id"]
        sandboxes = project.inspect("sandboxes").items()
        (worker,) = (name for name, held in sandboxes if any(one.get("call") == call_id for one in held))
        containers = project.containers("worker")
        (victim,) = (one for one in containers if project.worker_name(one) == worker)
        project.kill_main(victim)
        assert project.call("mean")["value"] == 3.0, "the others' calls go on"
        output, errors = client.communicate(timeout=60)
        assert json.loads(output)["value"] == "WorkerLostError", errors
    restarts = sum(one["RestartCount"] for one in project.containers("worker"))
    assert restarts == sum(one["RestartCount"] for one in containers) + 1
    eventually(lambda: project.healthy("worker"), "it is back")
    assert sorted(project.inspect("pools")) == REPLICAS


def test_a_killed_router_loses_no_call(project: Project) -> None:
    with project.client("many") as client:
        for router in project.containers("router"):
            project.kill_main(router)
        output, errors = client.communicate(timeout=120)
    assert client.returncode == 0, errors
    assert json.loads(output) == [2 * number for number in range(100)]
    eventually(lambda: project.healthy("router"), "they are back")


def test_results_survive_a_restart_of_redis(project: Project) -> None:
    told = project.call("mean")
    project.compose("restart", "redis")
    eventually(lambda: project.healthy("redis"), "it is back")
    assert project.call("again", told["id"])["value"] == 3.0
    assert project.call("mean")["value"] == 3.0


def test_the_commands_of_the_docs_work(project: Project) -> None:
    """But for those that end all, and those that build, which the fixture has done."""
    commands = [command for command in compose_commands() if command[0] != "down" and "--build" not in command]
    assert len(commands) > 5
    for command, *arguments in commands:
        # `up` looks again whether the generation still fits, and two can't work on it at once.
        eventually(lambda: project.containers("generation")[0]["State"]["Status"] == "exited", "it was looked at")
        project.compose(command, *(["--no-TTY"] if command in {"run", "exec"} else []), *arguments)
    eventually(lambda: all(map(project.healthy, ("redis", "router", "worker"))), "all are healthy again")


def test_an_image_gets_a_runsc_by_itself(project: Project) -> None:
    tag = f"{project.name}-runsc"
    try:
        subprocess.run(["docker", "build", "--quiet", "--target", "runsc", "--tag", tag, ROOT], check=True)
        command = ["docker", "run", "--rm", tag, "/opt/runsc", "--version"]
        told = subprocess.run(command, capture_output=True, text=True, check=True)
        assert told.stdout.startswith("runsc version ")
    finally:
        subprocess.run(["docker", "image", "rm", tag], check=True, stdout=subprocess.DEVNULL)


def test_services_stop_in_order_when_asked(project: Project) -> None:
    project.compose("stop")
    for service in ("redis", "router", "worker", "flower"):
        for container in project.containers(service):
            assert container["State"]["ExitCode"] == 0, f"{service} had to be killed"
