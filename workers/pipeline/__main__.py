"""``python -m workers.pipeline``: make a generation of a flavor, or find that it is there already."""

import argparse
import json
import logging
import os
import platform
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from types import FrameType

from pydantic import ValidationError
from rich.console import Console
from rich.logging import RichHandler
from rich.table import Table

import workers
from readie.protocol.catalogue import Catalogue, Checkpoint
from readie.settings import FlavorSettings
from workers.pipeline.build import Made, make_generation
from workers.pipeline.capture import CaptureError
from workers.pipeline.filesystem import host_python
from workers.pipeline.flavor import FlavorError, read_flavor
from workers.pipeline.progress import Progress
from workers.pipeline.publish import BusyError
from workers.sandbox.runsc import RunscError, find_runsc
from workers.sandbox.sandbox import SandboxFailedError


class _UnableError(Exception):
    """This machine or this user can't capture; the text says what to do."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit status: 0 done, 1 failed, 2 not possible here."""
    parser = argparse.ArgumentParser(prog="python -m workers.pipeline", description=__doc__)
    parser.add_argument(
        "--flavors",
        type=Path,
        default=Path(workers.__path__[0]).parent / "flavors",
        help="folder with a folder for each flavor (default: %(default)s)",
    )
    parser.add_argument("--json", action="store_true", help="print the result as JSON")
    options = parser.parse_args(arguments)
    signal.signal(signal.SIGTERM, _stop)
    console = Console(stderr=True)
    logging.basicConfig(
        level=logging.WARNING, format="%(message)s", handlers=[RichHandler(console=console, show_path=False)]
    )
    began = time.monotonic()
    try:
        settings = FlavorSettings()
        runsc = _require(settings)
        flavor = read_flavor(options.flavors / settings.flavor, host_python().version)
        made = make_generation(flavor, settings, runsc, Progress(console))
    except (_UnableError, ValidationError) as error:
        return _fail(console, error, 2)
    except (FlavorError, CaptureError, BusyError, SandboxFailedError, RunscError, OSError) as error:
        return _fail(console, error, 1)
    except KeyboardInterrupt:
        return _fail(console, "stopped; the generation in use is as before", 130)
    if options.json:
        sys.stdout.write(json.dumps(_summary(made, time.monotonic() - began), indent=2) + "\n")
    else:
        _show(made, time.monotonic() - began)
    return 0


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


def _cold_seconds(catalogue: Catalogue, checkpoint: Checkpoint) -> float:
    return catalogue.cost.cold_base_seconds + sum(catalogue.modules[name].import_seconds for name in checkpoint.holds)


def _summary(made: Made, seconds: float) -> dict[str, object]:
    catalogue = made.generation.catalogue
    return {
        "generation": catalogue.generation,
        "path": str(made.generation.path),
        "reused": made.reused,
        "seconds": round(seconds, 1),
        "checkpoints": [
            {
                "id": checkpoint.id,
                "imports": checkpoint.imported,
                "megabytes": round(checkpoint.megabytes, 1),
                "restore_seconds": round(checkpoint.restore_seconds, 4),
                "cold_seconds": round(_cold_seconds(catalogue, checkpoint), 4),
            }
            for checkpoint in catalogue.checkpoints
        ],
    }


def _show(made: Made, seconds: float) -> None:
    catalogue = made.generation.catalogue
    table = Table("checkpoint", "imports")
    for title in ("MB", "restore ms", "cold ms", "times faster"):
        table.add_column(title, justify="right", no_wrap=True)
    for checkpoint in catalogue.checkpoints:
        cold = _cold_seconds(catalogue, checkpoint)
        table.add_row(
            checkpoint.id,
            _shortened(checkpoint.imported),
            f"{checkpoint.megabytes:.0f}",
            f"{checkpoint.restore_seconds * 1000:.0f}",
            f"{cold * 1000:.0f}",
            f"{cold / checkpoint.restore_seconds:.1f}",
        )
    console = Console()
    console.print(table)
    state = "was there already" if made.reused else "is ready"
    console.print(f"generation {catalogue.generation} {state} ({seconds:.0f} s)", highlight=False)
    console.print(str(made.generation.path), highlight=False, soft_wrap=True)


def _shortened(imports: Sequence[str]) -> str:
    """Return the top-level names, each with how many of its submodules there are."""
    tops = dict.fromkeys(name.partition(".")[0] for name in imports)
    counts = {top: sum(name.startswith(f"{top}.") for name in imports) for top in tops}
    return ", ".join(f"{top} (+{count})" if count else top for top, count in counts.items()) or "nothing"


if __name__ == "__main__":
    sys.exit(main())
