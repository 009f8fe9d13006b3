"""Lines of the log: as text for people, or as JSON for what collects them.

A line says what happened and names values: ``"placed: call=%s worker=%s"``. As JSON, each is a field by itself.
Lines that are written while a call runs have its id, whoever writes them.
"""

import contextlib
import contextvars
import json
import logging
import re
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Final, Literal

from readie.protocol.owner import OWNER_PATTERN

LogFormat = Literal["text", "json"]

_PLACE: Final = re.compile(r"(?:\b(\w+)=)?%(?!%)[-#0 +]*\d*(?:\.\d+)?[a-zA-Z]")
"""Where a message has a value, and its name if it has one."""
_TASK: Final = re.compile(rf"\[((?:{OWNER_PATTERN}\.)?[0-9a-f]{{32}})\]")
"""How Celery's lines name a task."""
_NOISY: Final = ("celery.pool",)
"""Loggers that write whole messages when everything is logged."""
_call: contextvars.ContextVar[str | None] = contextvars.ContextVar("call", default=None)


@contextlib.contextmanager
def about_call(call_id: str) -> Iterator[None]:
    """Give the lines that this thread writes within the block the call's id."""
    before = _call.set(call_id)
    try:
        yield
    finally:
        _call.reset(before)


def write_log(log_format: LogFormat, level: str | int) -> None:
    """Write this process' log, Python's warnings included, to standard error from now on."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Json() if log_format == "json" else _Text())
    logging.basicConfig(level=level, handlers=[handler], force=True)
    logging.captureWarnings(True)
    for name in _NOISY:
        logging.getLogger(name).setLevel(logging.INFO)


class _Text(logging.Formatter):
    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(name)s: %(message)s")

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - as the base class has it
        line, call_id = super().formatMessage(record), _call.get()
        return line if call_id is None or call_id in record.message else f"{line} call={call_id}"


class _Json(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, object] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        }
        if (call_id := _call.get()) is not None:
            line["call"] = call_id
        line |= _fields(record)
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False)


def _fields(record: logging.LogRecord) -> dict[str, object]:
    """Return the values that a record names."""
    if record.name.startswith("celery."):
        task = _TASK.search(record.getMessage())
        return {"call": task[1]} if task else {}
    names = [match[1] for match in _PLACE.finditer(str(record.msg).replace("%%", ""))]
    values = record.args or ()
    if len(names) != len(values):
        return {}
    return {
        name: value if value is None or isinstance(value, (bool, int, float)) else str(value)
        for name, value in zip(names, values, strict=True)
        if name is not None and name not in {"time", "level", "logger", "message"}
    }
