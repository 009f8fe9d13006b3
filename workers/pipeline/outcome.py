"""Telling people and programs what was made."""

import json
from collections.abc import Sequence

from rich import box
from rich.console import Console
from rich.table import Table

from readie.protocol.catalogue import Catalogue, Checkpoint
from workers.pipeline.build import Made
from workers.pipeline.cost import restore_seconds
from workers.pipeline.demand import closure


def as_json(made: Made, seconds: float) -> str:
    """Return what was made as JSON; times in seconds."""
    catalogue = made.generation.catalogue
    outcome = {
        "generation": catalogue.generation,
        "path": str(made.generation.path),
        "reused": made.reused,
        "seconds": round(seconds, 1),
        "expected": made.expected.model_dump() if made.expected else None,
        "checkpoints": [
            {
                "id": checkpoint.id,
                "imports": checkpoint.imported,
                "megabytes": round(checkpoint.megabytes, 1),
                "restore_seconds": round(checkpoint.restore_seconds, 4),
                "predicted_seconds": round(restore_seconds(catalogue.cost, checkpoint.megabytes), 4),
                "cold_seconds": round(_cold_seconds(catalogue, checkpoint), 4),
            }
            for checkpoint in catalogue.checkpoints
        ],
    }
    return json.dumps(outcome, indent=2) + "\n"


def show(made: Made, seconds: float) -> None:
    """Print a table of the checkpoints, and what the generation gains."""
    catalogue = made.generation.catalogue
    table = Table(box=box.SIMPLE, padding=(0, 1), pad_edge=False)
    table.add_column("checkpoint", no_wrap=True)
    table.add_column("imports", overflow="fold")
    for title in ("MB", "restore ms", "predicted", "cold ms"):
        table.add_column(title, justify="right", no_wrap=True)
    for checkpoint in catalogue.checkpoints:
        table.add_row(
            checkpoint.id,
            shortened(checkpoint.imported),
            f"{checkpoint.megabytes:.0f}",
            f"{checkpoint.restore_seconds * 1000:.0f}",
            f"{restore_seconds(catalogue.cost, checkpoint.megabytes) * 1000:.0f}",
            f"{_cold_seconds(catalogue, checkpoint) * 1000:.0f}",
        )
    console = Console(highlight=False)
    console.print(table)
    if made.expected is not None:
        cold, planned = made.expected.cold_seconds, made.expected.planned_seconds
        console.print(
            f"mean predicted start over the corpus: {planned:.3f} s with this generation, {cold:.3f} s cold: "
            f"{cold / planned:.1f} times faster",
            soft_wrap=True,
        )
    state = "was there already" if made.reused else "is ready"
    console.print(f"generation {catalogue.generation} {state} ({seconds:.0f} s)")
    console.print(str(made.generation.path), soft_wrap=True)


def shortened(imports: Sequence[str]) -> str:
    """Return the top-level names, each with how many of its submodules there are."""
    tops = dict.fromkeys(name.partition(".")[0] for name in imports)
    counts = {top: sum(name.startswith(f"{top}.") for name in imports) for top in tops}
    return ", ".join(f"{top} (+{count})" if count else top for top, count in counts.items()) or "nothing"


def _cold_seconds(catalogue: Catalogue, checkpoint: Checkpoint) -> float:
    """Return the predicted cold start of a call that imports all that ``checkpoint`` does."""
    needed = {module for name in checkpoint.imported for module in closure(name, catalogue.modules)}
    return catalogue.cost.cold_base_seconds + sum(catalogue.modules[name].import_seconds for name in needed)
