"""Replicas find names by themselves."""

import subprocess
import sys
from pathlib import Path

CLAIM = """
import sys
from pathlib import Path
from workers.names import claim_name
print(claim_name(Path(sys.argv[1]), "worker"), flush=True)
sys.stdin.read()
"""


def test_a_replica_takes_the_lowest_number_that_is_free(tmp_path: Path) -> None:
    replicas: list[subprocess.Popen[str]] = []

    def start() -> str:
        replica = subprocess.Popen(
            [sys.executable, "-c", CLAIM, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        replicas.append(replica)
        assert replica.stdout is not None
        return replica.stdout.readline().strip()

    try:
        assert [start(), start(), start()] == ["worker1", "worker2", "worker3"]
        replicas[1].kill()
        replicas[1].wait()
        assert [start(), start()] == ["worker2", "worker4"]
    finally:
        for replica in replicas:
            with replica:
                replica.kill()
