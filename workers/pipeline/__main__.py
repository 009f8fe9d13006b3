"""``python -m workers.pipeline``: make a generation of a flavor, or find that it is there already."""

import argparse
import logging
import os
import platform
import re
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from types import FrameType

from pydantic import ValidationError
from redis.exceptions import RedisError
from rich.console import Console
from rich.logging import RichHandler

import workers
from readie.connection import connect, without_password
from readie.generations.publish import BusyError
from readie.settings import FlavorSettings
from readie.traffic import read_traffic
from workers.pipeline.build import Order, make_generation
from workers.pipeline.capture import CaptureError
from workers.pipeline.corpus import Corpus, ImportSet, corpus, read_corpus
from workers.pipeline.filesystem import build_filesystem, host_python
from workers.pipeline.flavor import MAX_CHECKPOINTS, Flavor, FlavorError, read_flavor
from workers.pipeline.outcome import as_json, show
from workers.pipeline.plan import Limits
from workers.pipeline.progress import Progress
from workers.sandbox.runsc import RunscError, find_runsc
from workers.sandbox.sandbox import SandboxFailedError


class _UnableError(Exception):
    """This machine or this user can't capture; the text says what to do."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit status: 0 done, 1 failed, 2 not possible here or as asked."""
    options = _parser().parse_args(arguments)
    signal.signal(signal.SIGTERM, _stop)
    console = Console(stderr=True)
    logging.basicConfig(
        level=logging.WARNING, format="%(message)s", handlers=[RichHandler(console=console, show_path=False)]
    )
    began = time.monotonic()
    try:
        settings = FlavorSettings()
        flavor = read_flavor(options.flavors / settings.flavor, host_python().version, options.extra)
        if options.packages_only:
            progress = Progress(console)
            built = build_filesystem(flavor, settings.data.resolve(), progress.say)
            progress.say(f"filesystem {built.filesystem.digest[:12]} {'unchanged' if built.reused else 'built'}")
            return 0
        runsc = _require(settings)
        order = Order(
            _corpus(flavor, settings, options),
            Limits(options.checkpoints, options.megabytes),
            only_if_better=options.from_traffic,
        )
        made = make_generation(flavor, order, settings, runsc, Progress(console))
    except (_UnableError, ValidationError) as error:
        return _fail(console, error, 2)
    except (FlavorError, CaptureError, BusyError, SandboxFailedError, RunscError, RedisError, OSError) as error:
        return _fail(console, error, 1)
    except KeyboardInterrupt:
        return _fail(console, "stopped; the generation in use is as before", 130)
    seconds = time.monotonic() - began
    if options.json:
        sys.stdout.write(as_json(made, seconds))
    else:
        show(made, seconds)
    return 0


def _parser() -> argparse.ArgumentParser:
    limits = Limits()
    parser = argparse.ArgumentParser(prog="python -m workers.pipeline", description=__doc__)
    parser.add_argument(
        "--flavors",
        type=Path,
        default=Path(workers.__path__[0]).parent / "flavors",
        help="folder with a folder for each flavor (default: %(default)s); READIE_FLAVOR names the one to build",
    )
    parser.add_argument(
        "--extra",
        action="append",
        default=[],
        type=_extra,
        metavar="NAME",
        help="install requirements-NAME.txt of the flavor too, and plan for corpus-NAME.jsonl too; may be repeated",
    )
    planned_for = parser.add_mutually_exclusive_group()
    planned_for.add_argument(
        "--corpus", type=Path, metavar="FILE", help="plan for the import sets in this JSON-lines file"
    )
    planned_for.add_argument(
        "--from-traffic",
        action="store_true",
        help="plan for the calls that the routers have counted in Redis (READIE_REDIS_URL), and build only if it gains",
    )
    parser.add_argument(
        "--checkpoints",
        type=_up_to_most_checkpoints,
        default=limits.checkpoints,
        metavar="N",
        help="most checkpoints besides the empty one (default: %(default)s)",
    )
    parser.add_argument(
        "--megabytes",
        type=float,
        default=limits.megabytes,
        metavar="MB",
        help="most memory that all of them hold together, as planned (default: %(default)g)",
    )
    parser.add_argument(
        "--packages-only",
        action="store_true",
        help="build the flavor's packages and no checkpoints: enough for workers that start every call cold",
    )
    parser.add_argument("--json", action="store_true", help="print the result as JSON")
    return parser


def _extra(name: str) -> str:
    if not re.fullmatch(r"[a-z0-9][a-z0-9_-]*", name):
        raise argparse.ArgumentTypeError(f"{name!r} is no name of an extra")
    return name


def _up_to_most_checkpoints(text: str) -> int:
    if not text.isdecimal() or int(text) > MAX_CHECKPOINTS:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 0 to {MAX_CHECKPOINTS}")
    return int(text)


def _corpus(flavor: Flavor, settings: FlavorSettings, options: argparse.Namespace) -> Corpus | None:
    if flavor.plan:
        if options.corpus or options.from_traffic:
            raise FlavorError(f"flavor {flavor.name!r} fixes its checkpoints in flavor.toml; there is nothing to plan")
        return None
    if options.corpus:
        return read_corpus(options.corpus)
    if options.from_traffic:
        redis = connect(settings.redis_url, name="readie-pipeline")
        counted = read_traffic(redis, flavor.name)
        source = f"the traffic counted in {without_password(settings.redis_url)}"
        return corpus(source, (ImportSet(imports=names, weight=count) for names, count in counted.items()))
    return read_corpus(*flavor.corpora)


def _require(settings: FlavorSettings) -> Path:
    if platform.machine() != "x86_64" or not sys.platform.startswith("linux"):
        raise _UnableError(f"checkpoints need Linux on amd64; this is {platform.system()} on {platform.machine()}")
    if os.geteuid() != 0:
        raise _UnableError("sandboxes need root: run this with sudo, or as root in a container")
    try:
        return find_runsc(settings.runsc)
    except FileNotFoundError as error:
        raise _UnableError(str(error)) from error


def _stop(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def _fail(console: Console, error: object, status: int) -> int:
    console.print(f"make generation: {error}", style="red", markup=False, highlight=False, soft_wrap=True)
    return status


if __name__ == "__main__":
    sys.exit(main())
