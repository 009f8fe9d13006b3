"""Models, tokenizers and datasets that are named by literals."""

from typing import Final, Literal

from .reading import Call

Kind = Literal["models", "tokenizers", "datasets"]

_NAMING_CALLS: Final[tuple[tuple[str, int, str, Kind], ...]] = (
    # end of the callee's dotted name, position and keyword of the argument, what it names
    ("from_pretrained", 0, "pretrained_model_name_or_path", "models"),
    ("pipeline", 1, "model", "models"),
    ("pipeline", 3, "tokenizer", "tokenizers"),
    ("SentenceTransformer", 0, "model_name_or_path", "models"),
    ("CrossEncoder", 0, "model_name_or_path", "models"),
    ("spacy.load", 0, "name", "models"),
    ("timm.create_model", 0, "model_name", "models"),
    ("load_dataset", 0, "path", "datasets"),
)


def named_by(callee: str, call: Call) -> list[tuple[Kind, str]]:
    """Return what a call names. ``callee``: the full dotted name of what is called."""
    found: list[tuple[Kind, str]] = []
    for end, position, keyword, kind in _NAMING_CALLS:
        if f".{callee}".endswith(f".{end}") and (name := call.literal(position, keyword)):
            found.append(("tokenizers" if "Tokenizer" in callee else kind, name))
    return found
