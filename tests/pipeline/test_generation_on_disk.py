"""Reading a generation, and whether a worker may use it."""

import logging
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from readie.generations.disk import GenerationError, current_generation, generations_folder, load_generation
from tests.pipeline.conftest import IDENTITY
from workers.generation import check, decide

Write = Callable[..., Path]


def test_a_whole_generation_loads_with_all_its_checkpoints(write_generation: Write) -> None:
    folder = write_generation()
    generation = load_generation(folder)
    assert generation.checkpoints == {
        "checkpoint_0": folder / "checkpoints" / "checkpoint_0",
        "checkpoint_1": folder / "checkpoints" / "checkpoint_1",
    }
    assert [checkpoint.id for checkpoint in generation.catalogue.checkpoints] == ["checkpoint_0", "checkpoint_1"]
    assert generation.dropped == {}
    assert check(generation, IDENTITY) == []
    decision = decide([], strict=True)
    assert (decision.keep, decision.messages) == (True, ())


def _remove_meta(image: Path) -> None:
    (image / "meta.json").unlink()


def _remove_image_file(image: Path) -> None:
    (image / "pages.img").unlink()


def _cut_image_file(image: Path) -> None:
    (image / "pages.img").write_bytes(b"page")


def _garble_meta(image: Path) -> None:
    (image / "meta.json").write_text("{")


def _another_fingerprint(image: Path) -> None:
    meta = image / "meta.json"
    meta.write_text(meta.read_text().replace("f" * 64, "e" * 64))


def _remove_all(image: Path) -> None:
    for file in image.iterdir():
        file.unlink()
    image.rmdir()


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        (_remove_meta, "meta.json can't be read"),
        (_remove_image_file, "pages.img can't be read"),
        (_cut_image_file, "pages.img has 4 bytes instead of 5"),
        (_garble_meta, "meta.json is not valid"),
        (_another_fingerprint, "fingerprint"),
        (_remove_all, "meta.json can't be read"),
    ],
)
def test_an_unreadable_checkpoint_drops_itself_alone(
    write_generation: Write, damage: Callable[[Path], None], says: str
) -> None:
    folder = write_generation()
    damage(folder / "checkpoints" / "checkpoint_1")
    generation = load_generation(folder)
    assert list(generation.checkpoints) == ["checkpoint_0"]
    assert [checkpoint.id for checkpoint in generation.catalogue.checkpoints] == ["checkpoint_0"]
    assert says in generation.dropped["checkpoint_1"]


@pytest.mark.parametrize("name", ["manifest.json", "catalogue.json"])
def test_without_manifest_or_catalogue_there_is_no_generation(write_generation: Write, name: str) -> None:
    folder = write_generation()
    (folder / name).write_text('{"generation": 7}')
    with pytest.raises(GenerationError, match=name):
        load_generation(folder)
    (folder / name).unlink()
    with pytest.raises(GenerationError, match=name):
        load_generation(folder)


def test_a_catalogue_of_another_generation_is_refused(write_generation: Write) -> None:
    folder = write_generation(generation="20270101T000000-abcdef01")
    with pytest.raises(GenerationError, match="20270101T000000-abcdef01"):
        load_generation(folder)


@pytest.mark.parametrize(
    ("change", "in_generation", "in_worker", "fix"),
    [
        ({"runsc_version": "20270101.0"}, "20260224.0", "20270101.0", "READIE_RUNSC"),
        (
            {"fingerprint": "0" * 64},
            "f" * 64,
            "0" * 64,
            "SANDBOX_NETWORK=none SANDBOX_OVERLAY=root:memory SANDBOX_GPU=none",
        ),
        ({"filesystem_digest": "1" * 64}, "d" * 64, "1" * 64, "make generation"),
        ({"python": "3.13"}, "3.11", "3.13", "Python 3.11"),
        ({"platform": "kvm"}, "systrap", "kvm", "systrap"),
        ({"wire_version": 2}, "1", "2", "release"),
        ({"cpu_features": frozenset({"sse4_2"})}, "avx2", "none of these", "CPU"),
    ],
)
def test_each_difference_names_field_both_values_and_the_fix(
    write_generation: Write, change: dict[str, Any], in_generation: str, in_worker: str, fix: str
) -> None:
    (mismatch,) = check(load_generation(write_generation()), replace(IDENTITY, **change))
    assert [mismatch.field] == list(change)
    assert (mismatch.generation_value, mismatch.worker_value) == (in_generation, in_worker)
    assert fix in mismatch.fix
    assert all(part in str(mismatch) for part in (mismatch.field, in_generation, in_worker, fix))


def test_a_cpu_with_more_features_fits(write_generation: Write) -> None:
    more = replace(IDENTITY, cpu_features=IDENTITY.cpu_features | {"avx512f"})
    assert check(load_generation(write_generation()), more) == []


def test_a_mismatch_drops_all_checkpoints_when_strict_and_none_otherwise(write_generation: Write) -> None:
    mismatches = check(load_generation(write_generation()), replace(IDENTITY, runsc_version="1", platform="ptrace"))
    strict, lax = decide(mismatches, strict=True), decide(mismatches, strict=False)
    assert (strict.keep, strict.level) == (False, logging.ERROR)
    assert (lax.keep, lax.level) == (True, logging.WARNING)
    for decision in (strict, lax):
        assert decision.messages[:2] == tuple(str(mismatch) for mismatch in mismatches)
        assert "CHECKPOINT_STRICT_COMPAT=false" in decision.messages[2]


def test_without_a_link_there_is_no_current_generation(tmp_path: Path) -> None:
    assert current_generation(tmp_path, "tiny") is None
    folder = generations_folder(tmp_path, "tiny")
    folder.mkdir(parents=True)
    (folder / "current").symlink_to("gone")
    assert current_generation(tmp_path, "tiny") is None
    (folder / "gone").mkdir()
    assert current_generation(tmp_path, "tiny") == (folder / "gone").resolve()
