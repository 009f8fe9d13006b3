"""Options of :func:`readie.remote`, checked where the function is decorated."""

import difflib
from collections.abc import Mapping
from typing import Any, TypedDict

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from .errors import ConfigurationError, InvalidRequestError
from .protocol.call import CallOptions


class RemoteOptions(TypedDict, total=False):
    """Keyword arguments of ``remote`` and ``options``, as editors and type checkers see them."""

    name: str
    timeout: float | None
    checkpoint_id: str | None
    disable_optimized_execution: bool


class Options(BaseModel):
    """The options of one remote function."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    name: str | None = Field(default=None, min_length=1, max_length=256)
    """Shown in Flower and logs. Default: the function's qualified name."""
    timeout: float | None = Field(default=None, gt=0, strict=False)
    """Longest execution in seconds; the sandbox is killed after it."""
    checkpoint_id: str | None = Field(default=None, pattern=r"^[A-Za-z0-9_.-]{1,64}$")
    """Checkpoint to restore, instead of the router's choice."""
    disable_optimized_execution: bool = False
    """Start cold, without a checkpoint."""

    @model_validator(mode="after")
    def _one_way_to_start(self) -> "Options":
        if self.checkpoint_id is not None and self.disable_optimized_execution:
            raise InvalidRequestError(
                f"checkpoint_id={self.checkpoint_id!r} asks for a checkpoint and disable_optimized_execution=True "
                "forbids one: leave one of them out"
            )
        return self

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> "Options":
        """Return checked options.

        Raises:
            ConfigurationError: an unknown option (names the nearest known one) or a wrong value.
            InvalidRequestError: options that contradict each other.
        """
        for name in values.keys() - cls.model_fields.keys():
            near = difflib.get_close_matches(name, cls.model_fields, n=1, cutoff=0.4)
            hint = f"did you mean {near[0]!r}?" if near else f"known: {', '.join(cls.model_fields)}"
            raise ConfigurationError(f"remote() has no option {name!r}; {hint}")
        try:
            return cls(**values)
        except ValidationError as error:
            wrong = error.errors()[0]
            where = ".".join(str(part) for part in wrong["loc"])
            raise ConfigurationError(f"option {where}={wrong['input']!r}: {wrong['msg']}") from None

    def changed(self, values: Mapping[str, Any]) -> "Options":
        """Return a checked copy with other values."""
        return self.of({**self.model_dump(exclude_defaults=True), **values})

    def for_call(self) -> CallOptions:
        """Return what of these travels with a call."""
        return CallOptions(
            timeout_seconds=self.timeout,
            checkpoint_id=self.checkpoint_id,
            disable_optimized_execution=self.disable_optimized_execution,
        )
