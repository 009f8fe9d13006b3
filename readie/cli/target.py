"""A function named on the command line as ``FILE:FUNCTION``."""

import importlib.util
import sys
from pathlib import Path
from typing import Any

import cloudpickle

from readie.errors import ConfigurationError
from readie.remote_function import RemoteFunction, remote


def load_function(target: str) -> RemoteFunction[..., Any]:
    """Execute the file and return the function, made remote if it is not.

    Raises:
        ConfigurationError: no such file or function, or the file fails.
    """
    file, colon, name = target.rpartition(":")
    path = Path(file)
    if not colon or not name:
        raise ConfigurationError(f"{target!r} is not FILE:FUNCTION, such as examples/quickstart.py:heavy_sections")
    if not path.is_file():
        raise ConfigurationError(f"there is no file {file!r}")
    module_name = path.stem
    spec = importlib.util.spec_from_file_location(module_name, path)
    if spec is None or spec.loader is None:
        raise ConfigurationError(f"{file!r} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[module_name] = module
    sys.path.insert(0, str(path.parent.resolve()))
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        raise ConfigurationError(f"{file!r} can't be imported: {type(error).__name__}: {error}") from error
    # No sandbox has this file.
    cloudpickle.register_pickle_by_value(module)
    function: Any = module
    for part in name.split("."):
        if not hasattr(function, part):
            raise ConfigurationError(f"{file!r} has no {name!r}")
        function = getattr(function, part)
    return function if isinstance(function, RemoteFunction) else remote(function)
