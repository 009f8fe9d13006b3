"""Where things are inside a sandbox. The worker mounts them there, the executor finds them there."""

from pathlib import Path

EXECUTOR_DIR = Path("/opt/readie")
"""The ``readie`` and ``workers.executor`` packages."""

PACKAGES_DIR = Path("/opt/packages")
"""The flavor's packages, cloudpickle among them."""

LAYERS_DIR = Path("/opt/layers")
"""Packages that were installed for calls, a folder for each set."""

CONTROL_DIR = Path("/run/readie")
"""The control directory, see ``control``."""
