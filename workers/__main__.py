"""``python -m workers --name NAME``: start a worker process with the flags Celery needs."""

import argparse
import os
import re
import sys


def main() -> None:
    """Run a worker until it is told to stop."""
    parser = argparse.ArgumentParser(prog="python -m workers", description="Start a Readie worker on this machine.")
    parser.add_argument("--name", default="worker", help="unique among the workers of this host (default: worker)")
    parser.add_argument(
        "--numbered",
        action="store_true",
        help="add the lowest number to the name that no other worker has which shares READIE_RUN, for replicas",
    )
    parser.add_argument(
        "--slots", type=int, help="calls that run at once (default: READIE_SLOTS, else two for each core)"
    )
    parser.add_argument("--loglevel", default="INFO", help="default: INFO")
    arguments = parser.parse_args()
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", arguments.name):
        parser.error("--name must be letters, digits, '.', '_' and '-', 64 at the most")
    if arguments.slots is not None:
        os.environ["READIE_SLOTS"] = str(arguments.slots)

    # After the environment is set: the app reads its settings when it is imported.
    from readie.protocol import keys  # noqa: PLC0415
    from workers.app import app  # noqa: PLC0415
    from workers.names import claim_name  # noqa: PLC0415
    from workers.settings import WorkerSettings  # noqa: PLC0415

    settings = WorkerSettings()
    name = claim_name(settings.run, arguments.name) if arguments.numbered else arguments.name
    app.worker_main(
        [
            "worker",
            "--pool=custom",
            f"--concurrency={settings.slots}",
            f"--hostname={name}@%h",
            f"--exclude-queues={keys.SUBMIT_QUEUE}",
            # Workers have nothing to tell each other, and asking takes a second at each connection.
            "--without-mingle",
            "--without-gossip",
            f"--loglevel={arguments.loglevel}",
        ]
    )
    sys.exit(0)


if __name__ == "__main__":
    main()
