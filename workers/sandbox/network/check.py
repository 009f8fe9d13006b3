"""Whether sandboxes really get the network that they are to have, which shows only when one runs."""

from __future__ import annotations

from workers.sandbox.host import SandboxHost
from workers.sandbox.network.gateway import NetworkUnavailableError
from workers.sandbox.sandbox import SandboxFailedError

_SECONDS = 30.0


def check_network(host: SandboxHost) -> None:
    """Start a sandbox of ``host``, which has a gateway; ``NetworkUnavailableError`` when this runsc can't do it."""
    try:
        sandbox = host.take()
        try:
            sandbox.start(timeout=_SECONDS)
            sandbox.wait_ready(timeout=_SECONDS)
        finally:
            host.discard(sandbox)
    except SandboxFailedError as error:
        raise NetworkUnavailableError(
            f"runsc {host.runsc_version} can't give sandboxes a network here: {error.reason}. "
            "`scripts/get-runsc --source go` builds one that can, READIE_RUNSC names it; "
            "SANDBOX_NETWORK=none does without"
        ) from None
