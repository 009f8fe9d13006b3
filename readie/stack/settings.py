"""Settings of the local stack."""

import hashlib
import os
from pathlib import Path
from typing import Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from readie.errors import ConfigurationError
from readie.home import default_data
from readie.settings import ServiceSettings


class StackSettings(ServiceSettings):
    """Read from ``READIE_*`` environment variables."""

    data: Path = Field(default_factory=default_data)
    """The folder of the flavors' filesystems and of the generations. Default: ``$XDG_DATA_HOME/readie``."""
    run: Path = Path("/run/readie")
    """Sandboxes' files while they live; ``readie up`` has a folder below it for each stack. Short: for sockets."""
    redis_server: Path | None = None
    """The Redis server. Default: the one beside this Python, else the first on PATH."""


def load_settings() -> StackSettings:
    """Read the environment.

    Raises:
        ConfigurationError: a variable has a value that can't be; names it.
    """
    try:
        return StackSettings()
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        name = "".join(f"READIE_{part}: ".upper() for part in first["loc"])
        raise ConfigurationError(f"{name}{first['msg'].removeprefix('Value error, ')}") from error


class StackOptions(BaseModel):
    """What one stack is made of; paths are absolute, as the supervisor has its own working folder."""

    model_config = ConfigDict(frozen=True)

    home: Path
    data: Path
    run: Path
    redis_server: Path | None
    workers: int = Field(ge=0, le=1000)
    slots: int | None = Field(default=None, ge=1, le=1000)
    """Of each worker; ``None`` leaves it to the worker."""
    redis_port: int | None = Field(default=None, ge=1, le=65535)
    """``None``: one that is free."""
    flower_port: int | None = Field(default=None, ge=1, le=65535)
    """``None``: without Flower."""

    @classmethod
    def from_settings(
        cls,
        settings: StackSettings,
        *,
        workers: int,
        slots: int | None,
        redis_port: int | None,
        flower_port: int | None,
    ) -> Self:
        """Put settings and a command's options together."""
        home = settings.home.absolute()
        # Workers of two stacks have the same names and would meet in one folder; the same home finds its own again.
        mark = hashlib.sha256(os.fsencode(home.resolve())).hexdigest()[:8]
        return cls(
            home=home,
            data=settings.data.absolute(),
            run=settings.run.absolute() / mark,
            redis_server=settings.redis_server,
            workers=workers,
            slots=slots,
            redis_port=redis_port,
            flower_port=flower_port,
        )
