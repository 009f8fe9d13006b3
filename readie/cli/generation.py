"""``readie generation``: looking at generations of checkpoints, switching between them, removing old ones."""

# ruff: noqa: PLC0415 - see the package's docstring

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from . import completion
from .display import console, print_json, say, table
from .options import AsJson

if TYPE_CHECKING:
    from readie.generations.differences import Differences
    from readie.generations.disk import Generation

app = typer.Typer(
    name="generation", help="Look at generations of checkpoints, and switch between them.", no_args_is_help=True
)

Flavor = Annotated[str | None, typer.Option(help="Its flavor.", show_default="READIE_FLAVOR, else default")]
Name = Annotated[
    str,
    typer.Argument(
        metavar="GENERATION",
        help="An id or the beginning of one, or 'current'.",
        autocompletion=completion.generations,
    ),
]


@app.command("list")
def list_(flavor: Flavor = None, as_json: AsJson = False) -> None:
    """List the generations of a flavor, the newest first.

    Exit status: 0 they are listed, be it none.
    """
    from readie.generations.disk import (
        GenerationError,
        current_generation,
        generation_folders,
        generations_folder,
        load_generation,
    )
    from readie.generations.store import disk_bytes, in_use

    data, flavor = _where(flavor)
    current = current_generation(data, flavor)
    rows: list[dict[str, object]] = []
    for folder in generation_folders(generations_folder(data, flavor)):
        row: dict[str, object] = {
            "generation": folder.name,
            "path": str(folder.resolve()),
            "current": folder.resolve() == current,
            "in_use": in_use(folder),
            "disk_bytes": disk_bytes(folder),
        }
        try:
            manifest = load_generation(folder).manifest
            row |= {
                "created_at": manifest.created_at.isoformat(),
                "runsc_version": manifest.runsc_version,
                "python": manifest.python,
                "checkpoints": len(manifest.checkpoints),
            }
        except GenerationError as error:
            row["error"] = str(error)
        rows.append(row)
    if as_json:
        print_json(rows)
        return
    if not rows:
        say(f"Flavor {flavor!r} has no generation; `make generation` makes one.")
        return
    made = table("Generation", "", "runsc", ">Checkpoints", ">Disk MB", whole=[str(row["generation"]) for row in rows])
    for row in rows:
        marks = [mark for mark, holds in (("current", row["current"]), ("in use", row["in_use"])) if holds]
        made.add_row(
            str(row["generation"]),
            ", ".join(marks),
            str(row.get("runsc_version", row.get("error"))),
            str(row.get("checkpoints", "")),
            f"{int(str(row['disk_bytes'])) / 1e6:.0f}",
        )
    console().print(made)


@app.command()
def show(name: Name = "current", flavor: Flavor = None, as_json: AsJson = False) -> None:
    """Show a generation: its checkpoints, what they cost, and how they came about.

    Exit status: 0 it is shown; 1 there is none of that name, or it is damaged.
    """
    from readie.generations.disk import GenerationError, read_plan
    from readie.generations.store import in_use

    generation = _find(name, flavor)
    manifest, catalogue = generation.manifest, generation.catalogue
    try:
        plan = read_plan(generation.path)
    except GenerationError:
        plan = None
    if as_json:
        facts = {
            "path": str(generation.path),
            "in_use": in_use(generation.path),
            "manifest": manifest.model_dump(mode="json"),
            "cost": catalogue.cost.model_dump(),
            "modules": len(catalogue.modules),
            "checkpoints": [checkpoint.model_dump() for checkpoint in catalogue.checkpoints],
            "dropped": dict(generation.dropped),
            "plan": plan.model_dump() if plan else None,
        }
        print_json(facts)
        return
    say(f"{manifest.generation}, flavor {manifest.flavor}, Python {manifest.python}")
    say(str(generation.path))
    say(
        f"captured {manifest.created_at:%Y-%m-%d %H:%M} by runsc {manifest.runsc_version} ({manifest.platform}, "
        f"network {manifest.network}, overlay {manifest.overlay}, gpu {manifest.gpu}), "
        f"from the filesystem {manifest.filesystem_digest[:12]}"
    )
    made = table("Checkpoint", ">MB", ">Restore ms", ">Off ms", "Imports")
    for checkpoint in catalogue.checkpoints:
        made.add_row(
            checkpoint.id,
            f"{checkpoint.megabytes:.0f}",
            f"{checkpoint.restore_seconds * 1e3:.0f}",
            f"{checkpoint.residual_seconds * 1e3:+.0f}",
            " ".join(checkpoint.imported) or "nothing",
        )
    console().print(made)
    cost = catalogue.cost
    say(
        f"restore: {cost.restore_base_seconds * 1e3:.0f} ms and {cost.restore_seconds_per_megabyte * 1e3:.2f} ms for "
        f"each MB; cold start: {cost.cold_base_seconds * 1e3:.0f} ms and the imports; {len(catalogue.modules)} modules"
    )
    for checkpoint_id, problem in generation.dropped.items():
        say(f"{checkpoint_id} is not usable: {problem}", "red")
    if plan is not None and plan.expected is not None:
        say(
            f"planned for {plan.import_sets} import sets of {plan.corpus}: mean predicted start "
            f"{plan.expected.planned_seconds:.3f} s, with the empty checkpoint alone "
            f"{plan.expected.empty_seconds:.3f} s, cold {plan.expected.cold_seconds:.3f} s"
        )
    for note in plan.notes if plan else ():
        say(note)


@app.command()
def verify(name: Name = "current", flavor: Flavor = None, as_json: AsJson = False) -> None:
    """Compare the content of a generation's files with what was captured.

    Exit status: 0 they are as captured; 1 something has changed, or there is no such generation.
    """
    from readie.generations.disk import verify as problems_of

    generation = _find(name, flavor)
    problems = problems_of(generation)
    if as_json:
        print_json({"generation": generation.manifest.generation, "problems": problems})
    elif problems:
        say("\n".join(problems))
    else:
        say(f"{generation.manifest.generation}: all {len(generation.checkpoints)} checkpoints are as captured.")
    raise typer.Exit(1 if problems else 0)


@app.command()
def use(name: Name, flavor: Flavor = None, as_json: AsJson = False) -> None:
    """Make a generation the current one. Running workers take it up by themselves.

    Exit status: 0 it is the current one; 1 there is none of that name, or the link can't be written.
    """
    from readie.generations.store import use as switch_to

    generation = _find(name, flavor)
    data, flavor = _where(flavor)
    with _files():
        switch_to(data, flavor, generation.path)
    if as_json:
        print_json({"generation": generation.manifest.generation, "path": str(generation.path)})
    else:
        say(f"{generation.manifest.generation} is the current generation of flavor {flavor!r}.")


@app.command()
def prune(
    keep: Annotated[int, typer.Option(min=0, help="How many to keep besides the current one, the newest.")] = 1,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Remove nothing, only say what would go.")] = False,
    flavor: Flavor = None,
    as_json: AsJson = False,
) -> None:
    """Remove old generations, and filesystems that no generation needs any more.

    The current generation and those that a worker serves are never removed.

    Exit status: 0 they are removed, be it none; 1 something can't be removed.
    """
    from dataclasses import asdict

    from readie.generations.store import prune as remove_old

    data, flavor = _where(flavor)
    with _files():
        pruned = remove_old(data, flavor, keep=keep, dry_run=dry_run)
    if as_json:
        print_json(asdict(pruned))
        return
    removed = "Would remove" if dry_run else "Removed"
    for name in pruned.generations:
        say(f"{removed} generation {name}")
    for name in pruned.filesystems:
        say(f"{removed} filesystem {name[:12]}")
    for name in pruned.in_use:
        say(f"Kept {name}: a worker serves it")
    say(f"{pruned.freed_bytes / 1e6:.0f} MB {'would be' if dry_run else 'are'} free again.")


@app.command()
def diff(
    before: Name,
    after: Annotated[
        str,
        typer.Argument(metavar="OTHER", help="The same, for the second one.", autocompletion=completion.generations),
    ] = "current",
    flavor: Flavor = None,
    as_json: AsJson = False,
) -> None:
    """Show what is different between two generations.

    Exit status: 0 it is shown, be it nothing; 1 there is none of that name, or it is damaged.
    """
    from readie.generations.differences import compare

    first, second = _find(before, flavor), _find(after, flavor)
    differences = compare(first, second)
    if as_json:
        print_json(differences.model_dump(mode="json"))
    else:
        _show_differences(first, second, differences)


def _show_differences(first: "Generation", second: "Generation", differences: "Differences") -> None:
    say(f"{first.manifest.generation} -> {second.manifest.generation}")
    if not differences.any:
        say("  Made for the same, with the same checkpoints; times differ as measurements do.")
    for field, change in (differences.manifest | differences.cost).items():
        say(f"  {field}: {_short(change.before)} -> {_short(change.after)}")
    for changed in differences.checkpoints:
        names = [*(f"+{name}" for name in changed.added), *(f"-{name}" for name in changed.removed)]
        say(f"  {changed.before or 'none'} -> {changed.after or 'none'}: {' '.join(names)}")
    for module, change in differences.modules.items():
        say(f"  import {module}: {_short(change.before)} -> {_short(change.after)} s")


def _short(value: str | float | None) -> str:
    if isinstance(value, float):
        return f"{value:.4f}"
    return "none" if value is None else value if len(value) < 64 else f"{value[:12]}..."


def _where(flavor: str | None) -> tuple[Path, str]:
    """Return the data folder and the flavor."""
    from pydantic import ValidationError

    from readie.errors import ConfigurationError
    from readie.settings import FlavorSettings

    try:
        settings = FlavorSettings() if flavor is None else FlavorSettings(flavor=flavor)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        raise ConfigurationError(f"{'.'.join(map(str, first['loc']))}: {first['msg']}") from None
    return settings.data.resolve(), settings.flavor


def _find(name: str, flavor: str | None) -> "Generation":
    from readie.generations.disk import load_generation
    from readie.generations.store import find

    return load_generation(find(*_where(flavor), name))


@contextmanager
def _files() -> Iterator[None]:
    """Turn what the operating system refuses into a message for people."""
    from readie.errors import ReadieError

    try:
        yield
    except OSError as error:
        raise ReadieError(f"{error.filename}: {error.strerror}") from error
