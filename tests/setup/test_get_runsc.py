from __future__ import annotations

import importlib.machinery
import importlib.util
import json
import os
import shutil
import socket
import subprocess
import sys
import uuid
from pathlib import Path
from types import ModuleType

import pytest
from setup_scripts import SCRIPTS, GetRunsc, last_line, run, write_program

AS_NOBODY = ("unshare", "--user") if os.geteuid() == 0 else ()
WITHOUT_SYS_ADMIN = ("setpriv", "--bounding-set=-sys_admin")
ON_DEBIAN = Path("/usr/share/keyrings/debian-archive-keyring.gpg").exists()

# A runsc in every way, up to the restore: that never comes back, and what it started has left its process group.
HANGS_ON_RESTORE = """#!/bin/sh
case "$*" in
*" restore "*) setsid sleep 1000 & sleep 1000 ;;
*) exec {runsc} "$@" ;;
esac
"""


def processes_with(mark: str) -> list[str]:
    """The processes whose environment holds `mark`."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if mark.encode() in (folder / "environ").read_bytes():
                found.append(folder.name)
        except OSError:
            continue
    return found


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """get-runsc as a module."""
    monkeypatch.syspath_prepend(str(SCRIPTS))
    loader = importlib.machinery.SourceFileLoader("get_runsc_script", str(SCRIPTS / "get-runsc"))
    spec = importlib.util.spec_from_loader(loader.name, loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, loader.name, module)
    loader.exec_module(module)
    return module


@pytest.mark.sandbox
def test_a_good_runsc_on_path_is_taken(get_runsc: GetRunsc, bin_folder: Path, good_runsc: Path) -> None:
    (bin_folder / "runsc").symlink_to(good_runsc)
    result = get_runsc()
    assert last_line(result) == str(good_runsc)
    assert "passed the probe" in result.stderr


@pytest.mark.sandbox
def test_json_tells_the_version_and_the_flags_of_the_taken_runsc(
    get_runsc: GetRunsc, bin_folder: Path, good_runsc: Path
) -> None:
    (bin_folder / "runsc").symlink_to(good_runsc)
    facts = json.loads(last_line(get_runsc("--source", "path", "--json")))
    version = subprocess.run([good_runsc, "--version"], capture_output=True, text=True, check=True).stdout
    assert version.startswith(f"runsc version {facts['version']}\n")
    assert facts["path"] == str(good_runsc)
    assert facts["source"] == "path"
    assert {"compression", "image-path", "leave-running"} <= set(facts["checkpoint_flags"])
    assert {"detach", "image-path", "bundle"} <= set(facts["restore_flags"])


@pytest.mark.sandbox
def test_a_probe_leaves_no_process_no_mount_and_no_file(
    get_runsc: GetRunsc, bin_folder: Path, good_runsc: Path, tmp_path: Path
) -> None:
    (bin_folder / "runsc").symlink_to(good_runsc)
    mark = uuid.uuid4().hex
    last_line(get_runsc("--source", "path", READIE_TEST_MARK=mark))
    assert processes_with(mark) == []
    assert str(tmp_path) not in Path("/proc/self/mounts").read_text()
    assert list((tmp_path / "tmp").iterdir()) == []


@pytest.mark.sandbox
def test_a_runsc_that_hangs_on_restore_is_rejected_and_ended(
    get_runsc: GetRunsc, bin_folder: Path, good_runsc: Path, tmp_path: Path
) -> None:
    write_program(bin_folder / "runsc", HANGS_ON_RESTORE.format(runsc=good_runsc))
    mark = uuid.uuid4().hex
    result = get_runsc("--source", "path", "--probe-limit", "5", READIE_TEST_MARK=mark)
    assert result.returncode == 1
    assert result.stdout == ""
    assert "restoring: hung, and was killed after 5 seconds" in result.stderr
    assert processes_with(mark) == []
    assert list((tmp_path / "tmp").iterdir()) == []


@pytest.mark.sandbox
@pytest.mark.parametrize("text", ["#!/bin/sh\nexit 0\n", "#!/bin/sh\nexit 3\n", "no program at all\n"])
def test_a_program_that_is_no_runsc_is_rejected(get_runsc: GetRunsc, bin_folder: Path, text: str) -> None:
    write_program(bin_folder / "runsc", text)
    result = get_runsc("--source", "path")
    assert result.returncode == 1
    assert result.stdout == ""
    assert f"not {bin_folder}/runsc (path): asking for its version" in result.stderr


@pytest.mark.sandbox
def test_an_earlier_fetched_runsc_is_taken_when_the_one_on_path_is_bad(
    get_runsc: GetRunsc, bin_folder: Path, good_runsc: Path, tmp_path: Path
) -> None:
    write_program(bin_folder / "runsc", "#!/bin/sh\nexit 0\n")
    fetched = tmp_path / "cache" / "readie" / "runsc" / "1.0" / "runsc"
    fetched.parent.mkdir(parents=True)
    shutil.copy(good_runsc, fetched)
    (fetched.parent / "source").write_text("debian\n")
    result = get_runsc("--print")
    assert last_line(result) == str(fetched)
    assert f"not {bin_folder}/runsc (path)" in result.stderr


@pytest.mark.sandbox
def test_print_fetches_nothing_and_fails_when_no_runsc_is_here(get_runsc: GetRunsc, tmp_path: Path) -> None:
    result = get_runsc("--source", "debian", "--print")
    assert result.returncode == 1
    assert result.stdout == ""
    assert not (tmp_path / "cache").exists()


@pytest.mark.sandbox
def test_dest_gets_a_copy_that_runs(get_runsc: GetRunsc, bin_folder: Path, good_runsc: Path, tmp_path: Path) -> None:
    (bin_folder / "runsc").symlink_to(good_runsc)
    place = tmp_path / "usr" / "runsc"
    assert last_line(get_runsc("--dest", place)) == str(place)
    assert list(place.parent.iterdir()) == [place]
    assert not place.is_symlink()
    subprocess.run([place, "--version"], check=True, stdout=subprocess.DEVNULL)


@pytest.mark.sandbox
@pytest.mark.skipif(not ON_DEBIAN, reason="Debian's package comes from a Debian machine's own mirror")
def test_debians_package_gives_a_runsc_and_is_fetched_once(get_runsc: GetRunsc, tmp_path: Path) -> None:
    path = Path(last_line(get_runsc("--source", "debian")))
    version = subprocess.run([path, "--version"], capture_output=True, text=True, check=True).stdout.split()[2]
    assert path == tmp_path / "cache" / "readie" / "runsc" / version / "runsc"
    assert last_line(get_runsc("--source", "debian", "--print")) == str(path)


@pytest.mark.sandbox
@pytest.mark.timeout(1000)
@pytest.mark.skipif(not ON_DEBIAN or shutil.which("go") is None, reason="needs two sources: Debian and Go")
def test_two_versions_can_be_had_side_by_side() -> None:
    # With the user's own cache, where the build is kept: it takes minutes.
    found = [json.loads(last_line(run(SCRIPTS / "get-runsc", "--source", name, "--json"))) for name in ("debian", "go")]
    assert found[0]["version"] != found[1]["version"]
    assert all(Path(facts["path"]).parent.name == facts["version"] for facts in found)


@pytest.mark.sandbox
def test_a_missing_capability_is_named_and_no_probe_takes_the_runsc_untried(
    get_runsc: GetRunsc, bin_folder: Path, good_runsc: Path
) -> None:
    (bin_folder / "runsc").symlink_to(good_runsc)
    refused = get_runsc(prefix=WITHOUT_SYS_ADMIN)
    assert refused.returncode == 1
    assert "SYS_ADMIN" in refused.stderr
    assert "--no-probe" in refused.stderr
    assert last_line(get_runsc("--no-probe", prefix=WITHOUT_SYS_ADMIN)) == str(good_runsc)


def test_without_root_it_says_so_and_fails(get_runsc: GetRunsc) -> None:
    result = get_runsc(prefix=AS_NOBODY)
    assert result.returncode == 1
    assert result.stdout == ""
    assert "as root or with sudo" in result.stderr


def test_on_another_architecture_it_says_so_and_fails(get_runsc: GetRunsc) -> None:
    result = get_runsc(prefix=("setarch", "i686"))
    assert result.returncode == 1
    assert result.stdout == ""
    assert "this is Linux on i686" in result.stderr
    assert "amd64" in result.stderr


def test_a_release_with_the_pinned_checksum_is_accepted(script: ModuleType, tmp_path: Path) -> None:
    served = tmp_path / "served"
    served.write_bytes(b"a release")
    digest = script.hashlib.sha512(b"a release").hexdigest()
    assert script.fetch_release(tmp_path, served.as_uri(), digest).read_bytes() == b"a release"


def test_a_release_with_another_checksum_is_refused(script: ModuleType, tmp_path: Path) -> None:
    served = tmp_path / "served"
    served.write_bytes(b"something else")
    with pytest.raises(script.SourceError, match="SHA-512"):
        script.fetch_release(tmp_path, served.as_uri())


def test_a_host_that_accepts_and_never_answers_is_given_up(script: ModuleType) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}/runsc"
        with pytest.raises(script.SourceError, match="did not answer"):
            script.open_url(url, 0.2)
