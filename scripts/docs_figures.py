"""Brings the figures of benchmarks/results/ into the site; the documentation's pages link to them in the repository."""

from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

_IN_REPOSITORY = "../benchmarks/results/"
_IN_SITE = "figures/"


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add every figure."""
    folder = Path(config.docs_dir) / _IN_REPOSITORY
    for path in sorted(folder.glob("*.svg")):
        files.append(File.generated(config, _IN_SITE + path.name, abs_src_path=str(path.resolve())))
    return files


def on_page_markdown(markdown: str, **_: object) -> str:
    """Link to the site's own."""
    return markdown.replace(f"]({_IN_REPOSITORY}", f"]({_IN_SITE}")
