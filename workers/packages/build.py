"""Making a layer: uv in a sandbox of its own, with the package index as its only way out."""

from __future__ import annotations

import contextlib
import io
import json
import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import cloudpickle

from readie.pickling import dump_call
from readie.protocol import payload
from workers.executor import layout
from workers.executor.wire import FrameTooLargeError, WireError
from workers.packages import installer
from workers.packages.index_proxy import IndexProxy
from workers.pipeline.flavor import FlavorError
from workers.pipeline.uv import find_uv
from workers.sandbox.connection import CallResult, ConnectionLostError, ExecutorConnection
from workers.sandbox.host import SandboxHost
from workers.sandbox.sandbox import Sandbox, SandboxFailedError
from workers.sandbox.starter import Caller

LARGEST_LAYER_BYTES: Final = 512 << 20
"""Of a layer as a tar; what is larger belongs into a flavor."""
_MEMORY_BYTES: Final = 3 * LARGEST_LAYER_BYTES
"""uv's cache, the layer and the tar of it are all in the sandbox's memory for a moment."""
_START_SECONDS: Final = 30.0
_INSTALL_SECONDS: Final = 600.0
_SOCKET: Final = "index.sock"
_PASSED_ON: Final = (
    "UV_DEFAULT_INDEX", "UV_INDEX", "UV_INDEX_URL", "UV_EXTRA_INDEX_URL", "UV_FIND_LINKS", "UV_INDEX_STRATEGY",
    "UV_INSECURE_HOST", "UV_EXCLUDE_NEWER", "UV_PRERELEASE", "UV_NATIVE_TLS", "UV_HTTP_TIMEOUT",
)  # fmt: skip
_OF_PIP: Final = {"PIP_INDEX_URL": "UV_DEFAULT_INDEX", "PIP_EXTRA_INDEX_URL": "UV_INDEX"}
_PORTS: Final = {"http": 80, "https": 443}
_CERTIFICATES: Final = "SSL_CERT_FILE"
_CONFIGURATION: Final = "UV_CONFIG_FILE"

# The sandboxes have no workers.packages.
cloudpickle.register_pickle_by_value(installer)


class PackagesError(Exception):
    """A call's packages can't be installed; the text is for whoever asked for them."""


class _InstallerError(PackagesError):
    """uv failed."""


@dataclass(frozen=True)
class Built:
    """What was installed: versions by package, a tar of it, and whether the former are true.

    They may not be when a package's code ran beside the installer, to be built.
    """

    pins: dict[str, str]
    packed: io.BytesIO
    trusted: bool


class Builder:
    """Installs packages in sandboxes of ``host``, whose layers folder gets a copy of uv for that."""

    def __init__(self, host: SandboxHost, layers: Path, environment: Mapping[str, str] = os.environ) -> None:
        self._host = host
        self._layers = layers
        self._environment = environment

    def build(self, requirements: Sequence[str], fixed: Mapping[str, str], caller: Caller) -> Built:
        """Install what ``requirements`` need beyond the flavor's packages.

        Of the flavor's packages, those in ``fixed`` can't be had in other versions. Raises ``PackagesError``, or what
        ``caller.runs_in`` raises when the call has been cancelled.
        """
        try:
            uv = self._place_uv()
            sandbox = self._host.take()
        except (OSError, FlavorError, SandboxFailedError) as error:
            raise PackagesError(f"packages can't be installed on this worker: {error}") from error
        try:
            caller.runs_in(sandbox)
            return self._build(sandbox, uv, requirements, fixed)
        except (SandboxFailedError, ConnectionLostError, WireError, TimeoutError, OSError) as error:
            raise PackagesError(f"installing {', '.join(requirements)} failed: {_why(sandbox, error)}") from error
        finally:
            self._host.discard(sandbox)

    def _build(self, sandbox: Sandbox, uv: str, requirements: Sequence[str], fixed: Mapping[str, str]) -> Built:
        sandbox.start(timeout=_START_SECONDS)
        connection = sandbox.wait_ready(timeout=_START_SECONDS)
        sandbox.limit(memory_bytes=_MEMORY_BYTES)
        environment, files = self._settings()
        setup = {"uv": uv, "proxy": str(layout.CONTROL_DIR / _SOCKET), "environment": environment, "files": files}
        setup["packages"] = str(layout.PACKAGES_DIR)
        with contextlib.closing(IndexProxy(sandbox.control_dir / _SOCKET, _services(environment))) as proxy:
            pin = next(f"{name}=={version}" for name, version in fixed.items())
            _run(connection, requirements, installer.learn, setup, pin)
            proxy.hold()
            arguments = setup, list(requirements), dict(fixed)
            trusted = True
            try:
                result = _run(connection, requirements, installer.install, *arguments, build=False)
            except _InstallerError:
                trusted = False
                result = self._with_code(proxy, connection, requirements, *arguments)
        try:
            # A buffer beside the pickle, which stays unread.
            pickled, *_ = payload.decode(result.value)
            (answer,) = pickled.buffers
            packed = io.BytesIO(answer)
            pins = {str(name): str(version) for name, version in json.loads(packed.readline()).items()}
        except (ValueError, AttributeError) as error:
            raise WireError(f"the installer's answer is not as agreed: {error}") from None
        return Built(pins, io.BytesIO(packed.read()), trusted)

    def _with_code(
        self, proxy: IndexProxy, connection: ExecutorConnection, requirements: Sequence[str], *arguments: object
    ) -> CallResult:
        """Install what can't be had without running the code of packages."""
        try:
            return _run(connection, requirements, installer.install, *arguments, build=True)
        except _InstallerError as error:
            refused = f"\n(refused, as not of the index: {', '.join(proxy.refused)})" if proxy.refused else ""
            raise PackagesError(f"{error}{refused}") from None

    def _settings(self) -> tuple[dict[str, str], dict[str, str]]:
        """Return the operator's settings of uv and pip, and the content of the files that they name."""
        environment = {
            name: value
            for name, value in self._environment.items()
            if name in _PASSED_ON or (name.startswith("UV_INDEX_") and name.endswith(("_USERNAME", "_PASSWORD")))
        }
        for of_pip, of_uv in _OF_PIP.items():
            if of_pip in self._environment:
                environment.setdefault(of_uv, self._environment[of_pip])
        files = {}
        for name in (_CERTIFICATES, _CONFIGURATION):
            if path := self._environment.get(name):
                files[name] = Path(path).read_text()
        return environment, files

    def _place_uv(self) -> str:
        """Let sandboxes see uv; return its path there."""
        found = find_uv()
        size = found.stat().st_size
        name = f"uv-{size}-{found.stat().st_mtime_ns}"
        if not (self._layers / name).exists():
            draft = self._layers / f".{name}.{os.getpid()}"
            shutil.copyfile(found, draft)
            draft.chmod(0o755)
            draft.rename(self._layers / name)
        return str(layout.LAYERS_DIR / name)


def _run(
    connection: ExecutorConnection, requirements: Sequence[str], function: Any, *arguments: object, **options: object
) -> CallResult:
    call = dump_call(function, arguments, options)
    try:
        result = connection.call(
            "packages", "install", [call], timeout=_INSTALL_SECONDS, max_result_bytes=LARGEST_LAYER_BYTES
        )
    except FrameTooLargeError as error:
        raise PackagesError(
            f"{', '.join(requirements)} and what they need are too large for packages=: {error}; put them into a flavor"
        ) from None
    if result.error is not None:
        failed = f"installing {', '.join(requirements)} failed:\n"
        if result.error.type != "InstallError":
            raise PackagesError(failed + result.error.traceback)
        raise _InstallerError(failed + result.error.message)
    return result


def _services(environment: Mapping[str, str]) -> set[tuple[str, int]]:
    """Return the hosts and ports that are named in the operator's settings."""
    words = (word for value in environment.values() for word in value.replace(",", " ").split())
    # Of a named index, such as "internal=https://...", the name is before the scheme.
    found = (urlsplit(word[max(0, word.rfind("=", 0, word.index("://")) + 1) :]) for word in words if "://" in word)
    return {(url.hostname, url.port or _PORTS.get(url.scheme, 0)) for url in found if url.hostname}


def _why(sandbox: Sandbox, error: Exception) -> str:
    if isinstance(error, TimeoutError):
        return f"it was not done after {_INSTALL_SECONDS:g} s"
    exhausted = sandbox.exhausted()
    return f"the sandbox ran out of {exhausted.resource}" if exhausted else str(error)
