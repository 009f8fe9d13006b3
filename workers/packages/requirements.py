"""What a call's packages mean for a flavor. Data in, data out."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion


def lacking(packages: Iterable[str], installed: Mapping[str, str]) -> list[str]:
    """Return the requirements that the flavor does not fulfil, sorted; ``ValueError`` for one that is none.

    ``installed`` are versions by canonical name. A requirement with extras is never taken as fulfilled, because what
    they need is not known without the index.
    """
    lacking = set()
    for text in packages:
        try:
            requirement = Requirement(text)
        except InvalidRequirement as error:
            raise ValueError(f"{text!r} is no requirement: {error}") from None
        if requirement.url is not None:
            raise ValueError(f"{text!r} names a URL; give a name and versions, to be found in the index")
        version = installed.get(canonicalize_name(requirement.name))
        if version is None or requirement.extras or not _fits(requirement, version):
            lacking.add(str(requirement))
    return sorted(lacking)


def key_of(parts: Iterable[str]) -> str:
    """Return a name for a set of texts, the same in any order."""
    return hashlib.sha256(json.dumps(sorted(parts)).encode()).hexdigest()


def conflicts(modules: Iterable[str], imported: Iterable[str]) -> list[str]:
    """Return the top-level modules of a layer that a checkpoint has imported already, from elsewhere."""
    return sorted(set(modules) & {name.partition(".")[0] for name in imported})


def _fits(requirement: Requirement, version: str) -> bool:
    try:
        return requirement.specifier.contains(version, prereleases=True)
    except InvalidVersion:
        return False
