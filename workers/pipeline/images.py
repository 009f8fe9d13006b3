"""Turning sets of imports into images, and dividing sets of which no image can be had."""

import logging
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from workers.pipeline import probe
from workers.pipeline.capture import (
    CaptureError,
    Restore,
    capture,
    refuse_clones,
    remove_files,
    restore,
    run,
    start_cold,
)
from workers.sandbox.host import SandboxHost
from workers.sandbox.import_report import ImportReport

logger = logging.getLogger(__name__)

_CLONES: Final = 2
"""Restores that show whether an image may be used."""
_TRIAL_SECONDS: Final = 300.0


@dataclass(frozen=True)
class Image:
    """An image that restores, and whose clones differ where they must."""

    checkpoint_id: str
    folder: Path
    imports: tuple[str, ...]
    report: ImportReport
    restores: list[Restore]
    """Those made so far."""

    def restore_again(self, host: SandboxHost) -> None:
        """Restore it once more; ``CaptureError`` when it fails or the clone is equal to an earlier one."""
        self.restores.append(restore(host, self.folder))
        refuse_clones(self.checkpoint_id, self.restores)


class Images:
    """The images of one generation, in ``folder``, numbered in the order in which they are taken."""

    def __init__(self, host: SandboxHost, folder: Path) -> None:
        self._host = host
        self._folder = folder
        self.images: list[Image] = []
        self.notes: list[str] = []
        """What became of sets of which no image could be taken as they were."""

    def take(self, imports: Sequence[str]) -> Image:
        """Take the next image; ``CaptureError`` when it can't be had, and nothing of it is left."""
        checkpoint_id = f"checkpoint_{len(self.images)}"
        folder = self._folder / checkpoint_id
        report = capture(self._host, imports, folder)
        image = Image(checkpoint_id, folder, tuple(imports), report, [])
        try:
            for _ in range(_CLONES):
                image.restore_again(self._host)
        except BaseException:
            remove_files(folder)
            raise
        self.images.append(image)
        return image

    def take_what_works(self, sets: Sequence[Sequence[str]], most: int, done: Callable[[str], None]) -> None:
        """Take images of ``sets``, in order, up to ``most``; ``done`` is told of each set.

        From a set of which no image can be had, the module is taken out with which it stops working: it is tried by
        itself, after all others, and what is left once more. What does not work alone is dropped. ``notes`` tell.
        """
        pending = deque(tuple(imports) for imports in sets)
        while pending:
            imports = pending.popleft()
            if len(self.images) >= most:
                self._note(f"there is no room for an image of {_listed(imports)}")
                continue
            try:
                image = self.take(imports)
            except CaptureError as error:
                pending.extend(self._divide(pending, imports, error))
            else:
                done(image.checkpoint_id)

    def _divide(
        self, pending: deque[tuple[str, ...]], imports: tuple[str, ...], error: CaptureError
    ) -> list[tuple[str, ...]]:
        """Put what works of ``imports`` back in front; return what is to be tried apart from it."""
        apart = error.failed or self._find_culprit(imports)
        left = tuple(name for name in imports if name not in apart)
        if not apart or not left:
            self._note(f"{_listed(imports)} can't be in an image: {error}")
            return []
        self._note(f"{_listed(apart)} can't be in one image with {_listed(left)}: {error}")
        pending.appendleft(left)
        return [(name,) for name in apart]

    def _find_culprit(self, imports: tuple[str, ...]) -> tuple[str, ...]:
        """Return the name with which importing these in order stops working; none when it works to the end."""
        works, fails = 0, len(imports)
        if self._imports_well(imports):
            return ()
        while fails - works > 1:
            middle = (works + fails) // 2
            if self._imports_well(imports[:middle]):
                works = middle
            else:
                fails = middle
        return (imports[works],)

    def _imports_well(self, imports: Sequence[str]) -> bool:
        sandbox, connection = start_cold(self._host)
        try:
            tried = run(connection, probe.try_imports, list(imports), timeout=_TRIAL_SECONDS)
        except CaptureError:
            return False
        finally:
            self._host.discard(sandbox)
        return not (tried["failed"] or tried["threads"] or tried["sockets"] > 0)

    def _note(self, text: str) -> None:
        logger.warning("%s", text)
        self.notes.append(text)


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names)
