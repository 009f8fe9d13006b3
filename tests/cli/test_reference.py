"""docs/cli.md and docs/settings.md say what the code does, and no setting is dead or undocumented."""

import importlib.util
import re
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from tests.conftest import ROOT

CODE = ("readie", "router", "workers")


def script(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, ROOT / "scripts" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def sources() -> Iterator[tuple[Path, str]]:
    """Yield every file that may read the environment, but for the tests."""
    for folder in CODE:
        for path in (ROOT / folder).rglob("*.py"):
            yield path, path.read_text()
    for path in (ROOT / "compose.yaml", ROOT / "Dockerfile", *(ROOT / "scripts").iterdir()):
        if path.is_file():
            yield path, path.read_text()


@pytest.mark.parametrize("name", ["cli_reference", "settings_reference"])
def test_the_page_is_what_the_code_says(name: str) -> None:
    module = script(name)
    assert module.PAGE.read_text() == module.page(), "run `make docs`"


def test_every_setting_is_used_where_it_is_read() -> None:
    settings = script("settings_reference")
    code = "".join(text for _, text in sources())
    fields = {name for reader in settings.READERS.values() for name in reader.model_fields}
    used = set(re.findall(r"settings(?:\(\))?\.(\w+)", code)) | set(re.findall(r"self\.(\w+)", settings_classes()))
    assert fields - used == set()


def settings_classes() -> str:
    """Return the code of the classes themselves: some settings only decide another one."""
    return "".join(text for path, text in sources() if path.name == "settings.py")


def test_every_variable_that_anything_reads_is_in_the_page() -> None:
    known = set(re.findall(r"^### (\w+)$", (ROOT / "docs" / "settings.md").read_text(), re.MULTILINE))
    found: dict[str, Path] = {}
    for path, text in sources():
        names = re.findall(r"""(?:environ(?:\.get)?[\[(]|getenv\(|_xdg\()["'](\w+)""", text)
        names += re.findall(r"\bREADIE_[A-Z_]+[A-Z]\b|\bSANDBOX_(?:NETWORK|OVERLAY|GPU)\b", text)
        if path.suffix != ".py":
            names += re.findall(r"(?<!\$)\$\{([A-Z][A-Z_]+)[:}-]", text)
        found |= dict.fromkeys(names, path)
    not_ours = {"PATH", "BASH_SOURCE", "FLOWER_BASIC_AUTH", "READIE_MODULES"}
    assert {name: path for name, path in found.items() if name not in known | not_ours} == {}
    assert len(found) > 30


def test_the_pages_name_no_variable_that_is_none() -> None:
    known = set(re.findall(r"^### (\w+)$", (ROOT / "docs" / "settings.md").read_text(), re.MULTILINE))
    named: set[str] = set()
    for page in [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]:
        named |= set(re.findall(r"\bREADIE_[A-Z_]+[A-Z]\b|\bSANDBOX_[A-Z]+\b|\bCHECKPOINT_[A-Z_]+\b", page.read_text()))
    assert named - known == set()
