"""What is different between two generations."""

from collections.abc import Sequence
from typing import Final

from readie.protocol.call import Message
from readie.protocol.catalogue import Catalogue, Checkpoint

from .disk import Generation
from .models import Manifest

_COMPARED: Final = (
    "runsc_version",
    "fingerprint",
    "filesystem_digest",
    "python",
    "platform",
    "wire_version",
    "network",
    "overlay",
    "gpu",
)
_LEAST_CHANGE: Final = 0.25
"""Measured times differ by some from one build to the next."""
_LEAST_SECONDS: Final = 0.005


class Change(Message):
    """A value in the first generation and in the second; ``None`` where it has none."""

    before: str | float | None
    after: str | float | None


class CheckpointChange(Message):
    """A checkpoint of the first generation and the one most like it of the second."""

    before: str | None
    after: str | None
    added: tuple[str, ...]
    """Imports that only the second has."""
    removed: tuple[str, ...]


class Differences(Message):
    """What ``compare`` finds."""

    manifest: dict[str, Change]
    cost: dict[str, Change]
    checkpoints: tuple[CheckpointChange, ...]
    """Those that differ in what they import."""
    modules: dict[str, Change]
    """Import seconds, where they differ by more than a quarter and 5 ms, or one has no such module."""

    @property
    def any(self) -> bool:
        """Whether the two differ in anything but what a measurement differs by each time."""
        return bool(self.manifest or self.checkpoints or self.modules)


def compare(before: Generation, after: Generation) -> Differences:
    """Return what is different between two generations."""
    return Differences(
        manifest=_manifests(before.manifest, after.manifest),
        cost={
            name: Change(before=value, after=getattr(after.catalogue.cost, name))
            for name, value in before.catalogue.cost
        },
        checkpoints=tuple(_checkpoints(before.catalogue.checkpoints, after.catalogue.checkpoints)),
        modules=_modules(before.catalogue, after.catalogue),
    )


def _manifests(before: Manifest, after: Manifest) -> dict[str, Change]:
    changes = {
        name: Change(before=str(getattr(before, name)), after=str(getattr(after, name)))
        for name in _COMPARED
        if getattr(before, name) != getattr(after, name)
    }
    gone = sorted(set(before.cpu_features) - set(after.cpu_features))
    new = sorted(set(after.cpu_features) - set(before.cpu_features))
    if gone or new:
        changes["cpu_features"] = Change(before=" ".join(gone) or None, after=" ".join(new) or None)
    return changes


def _checkpoints(before: Sequence[Checkpoint], after: Sequence[Checkpoint]) -> list[CheckpointChange]:
    pairs = sorted(
        ((one, other) for one in before for other in after),
        key=lambda pair: (-_likeness(*pair), before.index(pair[0]), after.index(pair[1])),
    )
    partner: dict[str, Checkpoint] = {}
    for one, other in pairs:
        if one.id not in partner and other not in partner.values() and _likeness(one, other) > 0:
            partner[one.id] = other
    changes = []
    for one in before:
        match = partner.get(one.id)
        imported = set(match.imported) if match else set[str]()
        added, removed = imported - set(one.imported), set(one.imported) - imported
        if match is None or added or removed:
            changes.append(_change(one.id, match.id if match else None, added, removed))
    new = [other for other in after if other not in partner.values()]
    return [*changes, *(_change(None, other.id, set(other.imported), set()) for other in new)]


def _change(before: str | None, after: str | None, added: set[str], removed: set[str]) -> CheckpointChange:
    return CheckpointChange(before=before, after=after, added=tuple(sorted(added)), removed=tuple(sorted(removed)))


def _likeness(one: Checkpoint, other: Checkpoint) -> float:
    """Return the share of imports that two checkpoints have in common; 1 for two empty ones."""
    both, any_ = set(one.imported) & set(other.imported), set(one.imported) | set(other.imported)
    return len(both) / len(any_) if any_ else 1.0


def _modules(before: Catalogue, after: Catalogue) -> dict[str, Change]:
    changes = {}
    for name in sorted(before.modules.keys() | after.modules.keys()):
        values = [
            catalogue.modules[name].import_seconds if name in catalogue.modules else None
            for catalogue in (before, after)
        ]
        known = [value for value in values if value is not None]
        low, high = min(known), max(known)
        if len(known) < 2 or (high - low > _LEAST_SECONDS and high - low > _LEAST_CHANGE * high):
            changes[name] = Change(before=values[0], after=values[1])
    return changes
