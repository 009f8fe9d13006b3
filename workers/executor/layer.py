"""Packages of one call: a folder that is found before the flavor's."""

from __future__ import annotations

import importlib
import site
import sys

from workers.executor import layout


def use(path: str) -> None:
    """Let imports find what is in the folder ``path``, and do what its .pth files say."""
    if path not in sys.path:
        flavor = str(layout.PACKAGES_DIR)
        sys.path.insert(sys.path.index(flavor) if flavor in sys.path else len(sys.path), path)
        site.addsitedir(path)
        importlib.invalidate_caches()
