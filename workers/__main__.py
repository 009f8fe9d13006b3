"""``python -m workers --name NAME``: start a worker process with the flags Celery needs."""

import argparse
import os
import re
import sys

from pydantic import ValidationError


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
    arguments = parser.parse_args()
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", arguments.name):
        parser.error("--name must be letters, digits, '.', '_' and '-', 64 at the most")
    if arguments.slots is not None:
        os.environ["READIE_SLOTS"] = str(arguments.slots)

    # After the environment is set: the app reads its settings when it is imported.
    from readie.monitoring.log_lines import write_log  # noqa: PLC0415
    from readie.protocol import keys  # noqa: PLC0415
    from workers.names import claim_name  # noqa: PLC0415
    from workers.preflight import EXIT_CANNOT_START  # noqa: PLC0415
    from workers.settings import WorkerSettings  # noqa: PLC0415

    try:
        settings = WorkerSettings()
    except ValidationError as error:
        print(f"worker {arguments.name}: cannot start: {error}", file=sys.stderr)  # noqa: T201
        sys.exit(EXIT_CANNOT_START)
    write_log(settings.log_format, settings.log_level)
    from workers.app import app  # noqa: PLC0415

    name = claim_name(settings.run, arguments.name) if arguments.numbered else arguments.name
    app.worker_main(
        [
            # Its banner is for people, and no JSON.
            *(["--quiet"] if settings.log_format == "json" else []),
            "worker",
            "--pool=custom",
            f"--concurrency={settings.slots}",
            f"--hostname={name}@%h",
            f"--exclude-queues={keys.SUBMIT_QUEUE}",
            # Workers have nothing to tell each other, and asking takes a second at each connection.
            "--without-mingle",
            "--without-gossip",
            f"--loglevel={settings.log_level}",
        ]
    )
    sys.exit(0)


if __name__ == "__main__":
    main()
