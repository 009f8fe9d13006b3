"""Sets of imports of which no image can be had as they are, in real sandboxes."""

from pathlib import Path

import pytest

from workers.pipeline.images import Images
from workers.sandbox.host import SandboxHost

pytestmark = pytest.mark.sandbox

MODULES = {
    "first": "",
    "second": "",
    "third": "",
    # Each works alone, and not after another.
    "jealous": "import sys\nif 'first' in sys.modules: raise ImportError('one of us is too many')\n",
    "kills": "import os, sys\nif 'first' in sys.modules: os._exit(3)\n",
    "watches": (
        "import sys, threading, time\n"
        "if 'first' in sys.modules:\n"
        "    threading.Thread(target=time.sleep, args=(1e6,), name='watcher', daemon=True).start()\n"
    ),
    "connects": "import sys, socket\nif 'first' in sys.modules: kept = socket.socketpair()\n",
    "never": "raise RuntimeError('never')\n",
}


@pytest.fixture
def images(host: SandboxHost, tmp_path: Path) -> Images:
    """Nothing taken yet; the modules above can be imported."""
    for name, content in MODULES.items():
        (host.filesystem.packages / f"{name}.py").write_text(content)
    return Images(host, tmp_path / "checkpoints")


@pytest.mark.parametrize(
    ("culprit", "says"),
    [
        ("jealous", "one of us is too many"),
        ("kills", "ended"),
        ("watches", "threads of Python: watcher"),
        ("connects", "2 sockets are open"),
    ],
)
def test_a_module_that_does_not_get_on_with_others_gets_an_image_of_its_own(
    images: Images, culprit: str, says: str
) -> None:
    done: list[str] = []
    images.take_what_works([("first", "second", culprit, "third"), ("second",)], 5, done.append)
    assert [image.imports for image in images.images] == [("first", "second", "third"), ("second",), (culprit,)]
    assert done == ["checkpoint_0", "checkpoint_1", "checkpoint_2"]
    (note,) = images.notes
    assert note.startswith(f"{culprit} can't be in one image with first, second, third: ")
    assert says in note


def test_what_works_with_nothing_is_dropped_and_said(images: Images) -> None:
    images.take_what_works([("never",), ("first",)], 5, lambda _: None)
    assert [(image.checkpoint_id, image.imports) for image in images.images] == [("checkpoint_0", ("first",))]
    (note,) = images.notes
    assert note.startswith("never can't be in an image: ")
    assert "RuntimeError: never" in note


def test_parts_for_which_there_is_no_room_are_said(images: Images) -> None:
    images.take_what_works([("first", "jealous"), ("second",)], 2, lambda _: None)
    assert [image.imports for image in images.images] == [("first",), ("second",)]
    assert images.notes[-1] == "there is no room for an image of jealous"
