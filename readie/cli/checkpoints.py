"""``readie checkpoints``."""

# ruff: noqa: PLC0415 - see the package's docstring

from typing import TYPE_CHECKING, Annotated

import typer

from . import completion
from .cluster import cluster_redis
from .display import Fact, console, facts, plain, print_json, say, seconds, table
from .options import AsJson, Worker

if TYPE_CHECKING:
    from readie.stack.checkpoints import CheckpointOverview, GenerationOverview


def checkpoints(
    checkpoint_id: Annotated[
        str | None,
        typer.Argument(
            metavar="CHECKPOINT",
            help="Show this one in full, with all that it holds.",
            autocompletion=completion.checkpoints,
            show_default=False,
        ),
    ] = None,
    worker: Worker = "",
    flavor: Annotated[str, typer.Option(help="Only of this flavor.", show_default=False)] = "",
    as_json: AsJson = False,
) -> None:
    """Show the checkpoints that the live workers can restore, and which worker serves which generation.

    Exit status: 0 there are some; 1 no worker has any (of these), so every call starts cold.
    """
    with cluster_redis("checkpoints") as redis:
        from readie.stack.checkpoints import look_at_checkpoints

        found = [
            generation.model_copy(update={"checkpoints": kept})
            for generation in look_at_checkpoints(redis)
            if flavor in {"", generation.flavor} and (not worker or worker in generation.workers)
            if (kept := tuple(one for one in generation.checkpoints if checkpoint_id in {None, one.id}))
            or checkpoint_id is None
        ]
    if as_json:
        print_json([generation.model_dump(mode="json") for generation in found])
    else:
        for generation in found:
            _show(generation, in_full=checkpoint_id is not None)
        if not found:
            say("No live worker has such a checkpoint." if checkpoint_id else "No such worker is there.")
    raise typer.Exit(0 if any(generation.checkpoints for generation in found) else 1)


def _show(generation: "GenerationOverview", *, in_full: bool) -> None:
    out = console()
    heading: list[Fact] = [
        ("Flavor", f"{generation.flavor}, Python {generation.python}, runsc {generation.runsc_version}"),
        ("Generation", generation.generation or "none: every call starts cold", "" if generation.generation else "red"),
        ("Workers", ", ".join(generation.workers)),
    ]
    if generation.catalogue_missing:
        heading.append(("Catalogue", "not in Redis: routers know nothing of it, and calls start cold", "red"))
    out.print(facts(heading))
    if in_full:
        for checkpoint in generation.checkpoints:
            out.print(facts(_facts(checkpoint)))
        return
    if not generation.checkpoints:
        return
    made = table("Checkpoint", ">MB", ">Restore", ">Ready", "Imports", whole=[one.id for one in generation.checkpoints])
    for one in generation.checkpoints:
        made.add_row(
            plain(one.id),
            f"{one.megabytes:.0f}",
            seconds(one.restore_seconds),
            str(sum(one.ready.values()) or ""),
            plain(" ".join(one.imported) or "nothing"),
        )
        for trouble in _troubles(one):
            made.add_row("", "", "", "", plain(trouble, "red"))
    out.print(made)


def _troubles(checkpoint: "CheckpointOverview") -> list[str]:
    return [
        *(f"restores fail on {worker}, not tried there now" for worker in checkpoint.avoided),
        *(f"{worker} could not take it up" for worker in checkpoint.lacking),
    ]


def _facts(one: "CheckpointOverview") -> list[Fact]:
    ready = ", ".join(f"{count} on {worker}" for worker, count in one.ready.items())
    return [
        ("Checkpoint", one.id),
        ("Size", f"{one.megabytes:.0f} MB"),
        ("Restore", f"{seconds(one.restore_seconds)} predicted, {seconds(one.measured_seconds)} when it was captured"),
        ("Ready", ready or "none"),
        ("Imported", " ".join(one.imported) or "nothing"),
        ("Holds", " ".join(one.holds) or "nothing of the catalogue"),
        *(("", trouble, "red") for trouble in _troubles(one)),
    ]
