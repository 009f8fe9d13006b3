from __future__ import annotations

import dataclasses
from typing import Any

from hypothesis import assume, given
from hypothesis import strategies as st

from workers.sandbox.fingerprint import fingerprint
from workers.sandbox.shape import Mount, Rlimit, SandboxShape

texts = st.text(st.characters(codec="ascii"), max_size=6)
word_lists = st.lists(texts, max_size=3).map(tuple)
fields: dict[str, st.SearchStrategy[Any]] = {
    "command": word_lists,
    "environment": st.dictionaries(texts, texts, max_size=3).map(lambda items: tuple(items.items())),
    "working_directory": texts,
    "uid": st.integers(0, 70000),
    "gid": st.integers(0, 70000),
    "capabilities": word_lists,
    "rlimits": st.lists(st.builds(Rlimit, texts, st.integers(0, 10)), max_size=3).map(tuple),
    "namespaces": word_lists,
    "mounts": st.lists(st.builds(Mount, texts, texts, word_lists), max_size=3).map(tuple),
    "overlay": texts,
    "network": st.sampled_from(["none", "sandbox", "host"]),
    "gpu": st.sampled_from(["none", "nvproxy"]),
    "cpu_limit": st.none() | st.floats(0.1, 64),
    "pids_limit": st.none() | st.integers(1, 1000),
}
shapes = st.builds(SandboxShape, **fields)
UNORDERED = {"environment", "capabilities", "rlimits", "namespaces"}


def test_every_field_of_a_shape_is_tried() -> None:
    assert set(fields) == {field.name for field in dataclasses.fields(SandboxShape)}


@given(shapes, st.data())
def test_a_change_of_any_field_changes_it(shape: SandboxShape, data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(sorted(fields)))
    old, new = getattr(shape, name), data.draw(fields[name])
    assume(sorted(old, key=repr) != sorted(new, key=repr) if name in UNORDERED else old != new)

    assert fingerprint(dataclasses.replace(shape, **{name: new})) != fingerprint(shape)


@given(shapes, st.data())
def test_an_order_that_means_nothing_changes_nothing(shape: SandboxShape, data: st.DataObject) -> None:
    shuffled = {name: tuple(data.draw(st.permutations(getattr(shape, name)))) for name in UNORDERED}

    assert fingerprint(dataclasses.replace(shape, **shuffled)) == fingerprint(shape)


@given(shapes)
def test_an_equal_shape_has_an_equal_one(shape: SandboxShape) -> None:
    copy = dataclasses.replace(shape)

    assert fingerprint(copy) == fingerprint(shape)
    assert len(fingerprint(shape)) == 64


def test_it_is_the_same_on_every_machine() -> None:
    """Checkpoints in use are bound to it: this value may only change together with what a sandbox looks like."""
    shape = SandboxShape(
        command=("/usr/bin/python3", "-m", "workers.executor"),
        environment=(("HOME", "/tmp"),),
        working_directory="/tmp",
        uid=65534,
        gid=65534,
        capabilities=(),
        rlimits=(Rlimit("RLIMIT_CORE", 0),),
        namespaces=("pid", "network"),
        mounts=(Mount("/usr", "bind", ("ro",)),),
        overlay="root:memory",
        network="none",
        gpu="none",
    )

    assert fingerprint(shape) == "002e5d0dcc5e73b9dd4be6628845f69e41be27e6d63b410f2c333465c2aeb7cf"
