"""Writes docs/settings.md from the classes that read the settings; `make docs` runs it."""

from __future__ import annotations

import ast
import inspect
import itertools
import re
import textwrap
from pathlib import Path
from typing import Any, NamedTuple, get_args, get_origin

from annotated_types import Ge, Gt, Le, Lt, MaxLen
from pydantic.fields import FieldInfo
from pydantic_settings import BaseSettings

from readie.settings import ClientSettings, FlavorSettings
from readie.stack.settings import StackSettings
from router.settings import RouterSettings
from workers.flower import FlowerSettings
from workers.settings import WorkerSettings

PAGE = Path(__file__).parent.parent / "docs" / "settings.md"
GENERATED = "<!-- Written by scripts/settings_reference.py from the code: change that, then run `make docs`. -->\n"
READERS: dict[str, type[BaseSettings]] = {
    "client": ClientSettings,
    "commands": StackSettings,
    "router": RouterSettings,
    "worker": WorkerSettings,
    "generation": FlavorSettings,
    "flower": FlowerSettings,
}
_UNITS = {"seconds": "s", "bytes": "bytes", "sandboxes": "sandboxes", "sessions": "sessions", "slots": "calls"}
_DEFAULT = re.compile(r"\s*Default: (.+?)\.?$", re.DOTALL)


class Variable(NamedTuple):
    """One setting, as it is set from outside."""

    name: str
    type: str
    default: str
    unit: str
    readers: tuple[str, ...]
    meaning: str


# What is read from the environment by something else than the classes above.
OTHERS = (
    Variable(
        "XDG_STATE_HOME", "path", "~/.local/state", "", ("client", "commands"), "Where `READIE_HOME` is by default."
    ),
    Variable(
        "XDG_DATA_HOME",
        "path",
        "~/.local/share",
        "",
        ("commands", "worker", "generation"),
        "Where `READIE_DATA` is by default.",
    ),
    Variable(
        "XDG_CACHE_HOME",
        "path",
        "~/.cache",
        "",
        ("scripts",),
        "`get-redis` and `get-runsc` keep what they fetched there.",
    ),
    Variable("PYTHON", "path", "python3", "", ("scripts",), "The interpreter that `make setup` makes `.venv` with."),
    Variable("PYTHON_VERSION", "text", "3.13", "", ("compose",), "Python of the image and of its sandboxes."),
    Variable(
        "RUNSC_SOURCE",
        "release, debian or path",
        "the first that answers",
        "",
        ("compose",),
        "Where the image's runsc comes from.",
    ),
    Variable("READIE_FLAVORS", "path", "./flavors", "", ("compose",), "The folder with the flavors' requirements."),
    Variable("PROMETHEUS_PORT", "number", "9090", "", ("compose",), "Port of Prometheus on the host's loopback."),
    Variable("GRAFANA_PORT", "number", "3000", "", ("compose",), "Port of Grafana on the host's loopback."),
    Variable("FLOWER_PORT", "number", "5555", "", ("compose",), "Port of Flower on the host's loopback."),
    Variable("FLOWER_PASSWORD", "text", "a random one", "", ("compose",), "Password of Flower's user `readie`."),
    Variable(
        "COMPOSE_PROJECT_NAME",
        "text",
        "readie",
        "",
        ("compose",),
        "Docker compose's own; keeps the sandboxes of two deployments apart.",
    ),
)


def variables() -> list[Variable]:
    """Return every setting, by name."""
    found: dict[str, Variable] = {}
    for reader, settings in READERS.items():
        documentation = _documentation(settings)
        for field_name, field in settings.model_fields.items():
            name = _environment_name(field_name, field)
            meaning = documentation[field_name]
            default = _DEFAULT.search(meaning)
            type_ = _type(field)
            variable = Variable(
                name,
                type_,
                default[1] if default else _default(field),
                next((unit for end, unit in _UNITS.items() if field_name.endswith(end) and "number" in type_), ""),
                (reader,),
                _markdown(_DEFAULT.sub("", meaning)),
            )
            known = found.get(name, variable)
            if known._replace(readers=()) != variable._replace(readers=()):
                raise SystemExit(f"{name} is one thing to {', '.join(known.readers)} and another to {reader}")
            found[name] = variable._replace(readers=tuple(dict.fromkeys((*known.readers, reader))))
    return sorted([*found.values(), *OTHERS], key=lambda variable: variable.name)


def _environment_name(field_name: str, field: FieldInfo) -> str:
    return str(field.validation_alias) if field.validation_alias else f"READIE_{field_name}".upper()


def _documentation(settings: type[BaseSettings]) -> dict[str, str]:
    """Return the text below each field, those of its bases included."""
    texts: dict[str, str] = {}
    for one in reversed(settings.__mro__):
        if issubclass(one, BaseSettings) and one is not BaseSettings:
            body = ast.parse(textwrap.dedent(inspect.getsource(one))).body[0].body  # type: ignore[attr-defined]
            for field, text in itertools.pairwise(body):
                if (
                    isinstance(field, ast.AnnAssign)
                    and isinstance(text, ast.Expr)
                    and isinstance(text.value, ast.Constant)
                ):
                    texts[field.target.id] = inspect.cleandoc(text.value.value)  # type: ignore[union-attr]
    return texts


def _type(field: FieldInfo) -> str:
    annotation: Any = field.annotation
    choices = [one for one in get_args(annotation) if one is not type(None)]
    if get_origin(annotation) is not None and str(get_origin(annotation)) == "typing.Literal":
        return " or ".join(f"`{choice}`" for choice in choices)
    plain = choices[0] if choices else annotation
    name = {int: "whole number", float: "number", bool: "`true` or `false`", Path: "path", str: "text"}[plain]
    return f"{name}{_bounds(field)}"


def _bounds(field: FieldInfo) -> str:
    texts = []
    for bound in field.metadata:
        match bound:
            case Ge(limit):
                texts.append(f"at least {limit:,}")
            case Gt(limit):
                texts.append(f"above {limit:,}")
            case Le(limit):
                texts.append(f"at most {limit:,}")
            case Lt(limit):
                texts.append(f"below {limit:,}")
            case MaxLen(limit):
                texts.append(f"at most {limit} characters")
    return f", {', '.join(texts)}" if texts else ""


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return "must be set"
    value = field.default
    if value is None or value == "":
        return "none"
    if field.default_factory is not None:
        raise SystemExit(f"its text must say what its default is: {field}")
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    if isinstance(value, int) and value >= 1 << 20 and value % (1 << 20) == 0:
        return f"{value} ({value >> 20} MiB)" if value < 1 << 30 else f"{value} ({value >> 30} GiB)"
    return f"`{value:g}`" if isinstance(value, float) else f"`{value}`"


def _markdown(text: str) -> str:
    """Return a text of the code as Markdown in one line."""
    text = re.sub(r":\w+:`~?([^`]+)`", r"`\1`", text.replace("``", "`"))
    return " ".join(text.split()).replace("|", "\\|")


def page() -> str:
    """Return docs/settings.md."""
    lines = [
        "# Settings",
        "",
        GENERATED,
        "All settings are environment variables. One that is set to nothing counts as not set; a wrong value ends",
        "the process with a message that names it. `readie.configure(...)` and `readie.Client(...)` take those of the",
        "client as arguments, in small letters and without `READIE_`.",
        "",
        "| read by | which is |",
        "| --- | --- |",
        "| client | whatever imports `readie` and calls functions |",
        "| commands | `readie ...`; `readie up` hands its whole environment on to what it starts |",
        "| router | `python -m router` |",
        "| worker | `python -m workers` |",
        "| generation | `make generation`, and `readie generation` for the folder and the flavor |",
        "| flower | `python -m workers.flower` |",
        "| compose | `docker compose`, from its environment or `.env` |",
        "| scripts | `make setup` and what it runs |",
        "",
    ]
    for variable in variables():
        facts = {
            "type": variable.type + (f", in {variable.unit}" if variable.unit else ""),
            "default": _markdown(variable.default),
            "read by": ", ".join(variable.readers),
        }
        lines += [f"### {variable.name}", "", _wrapped(variable.meaning), ""]
        lines += [f"- {name}: {text}" for name, text in facts.items()]
        lines.append("")
    return "\n".join(lines).rstrip() + "\n"


def _wrapped(text: str) -> str:
    return textwrap.fill(" ".join(text.split()), 120, break_long_words=False, break_on_hyphens=False)


if __name__ == "__main__":
    PAGE.write_text(page())
