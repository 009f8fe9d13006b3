"""The directory that becomes a sandbox's root: what programs look up in /etc, and nothing else of the host."""

from __future__ import annotations

import shutil
from pathlib import Path

from workers.sandbox.network.links import Address

_FILES = {
    # Without these, getpass.getuser() and localhost fail in user code.
    "etc/passwd": "root:x:0:0:root:/root:/bin/false\nreadie:x:65534:65534:readie:/tmp:/bin/false\n",
    "etc/group": "root:x:0:\nreadie:x:65534:\n",
    "etc/hosts": "127.0.0.1 localhost\n::1 localhost\n",
    "etc/nsswitch.conf": "hosts: files dns\n",
}
_RESOLVER = "etc/resolv.conf"
_CERTIFICATES = "etc/ssl/certs"
"""Authorities that the host trusts, where OpenSSL looks for them."""


def make_root(root: Path, *, network: str, nameserver: Address | None) -> Path:
    """Fill the directory ``root`` and return it; ``nameserver`` is for sandboxes with a network of their own."""
    files = dict(_FILES)
    if nameserver is not None:
        files[_RESOLVER] = f"nameserver {nameserver}\noptions timeout:4 attempts:2\n"
    elif network == "host":
        files[_RESOLVER] = Path("/", _RESOLVER).read_text(errors="replace")
    for name, content in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    certificates = Path("/", _CERTIFICATES)
    if network != "none" and certificates.is_dir():
        shutil.copytree(certificates, root / _CERTIFICATES, ignore_dangling_symlinks=True, dirs_exist_ok=True)
    return root
