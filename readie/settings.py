"""Settings that every process has, read from ``READIE_*`` environment variables. Router and worker add their own."""

from importlib.util import find_spec
from pathlib import Path
from typing import Literal, Self
from urllib.parse import parse_qs, urlsplit

from pydantic import Field, field_validator, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from readie.monitoring.log_lines import LogFormat

from .home import default_data, default_home, stack_redis_url
from .protocol.signing import Keyring
from .sentinel import SCHEME, SentinelUrl

DEFAULT_REDIS_URL = "redis://127.0.0.1:6379/0"


class Settings(BaseSettings):
    """What client, router and worker share."""

    model_config = SettingsConfigDict(
        env_prefix="READIE_",
        frozen=True,
        extra="ignore",
        env_ignore_empty=True,
        populate_by_name=True,
        # Passwords are among them.
        hide_input_in_errors=True,
    )

    home: Path = Field(default_factory=default_home)
    """State and logs of the local stack. Default: ``$XDG_STATE_HOME/readie``."""
    redis_url: str = ""
    """Redis that is broker, ledger and result store: ``redis://``, ``rediss://``, ``unix://``, or where Sentinels watch
    it ``sentinel://host,host,host/?master=name``. Default: the running local stack's, else
    ``redis://127.0.0.1:6379/0``."""
    redis_url_file: Path | None = None
    """A file with the URL, which has a password in it; read where ``READIE_REDIS_URL`` is not set."""

    tracing: bool = False
    """Write a trace of each call with OpenTelemetry; needs the extra ``otel``. Where to: see ``docs/metrics.md``."""

    @field_validator("tracing")
    @classmethod
    def _find_opentelemetry(cls, tracing: bool) -> bool:
        if tracing and not (find_spec("opentelemetry") and find_spec("opentelemetry.sdk")):
            raise ValueError("tracing needs OpenTelemetry: pip install 'readie[otel]'")
        return tracing

    signing_keys: str = Field(default="", repr=False)
    """Keys that calls and results are signed with, ``id:secret`` pairs separated by commas: the first signs, all
    verify. Where they are set, what is not signed is refused. Default: nothing is signed."""

    @field_validator("signing_keys")
    @classmethod
    def _check_keys(cls, text: str) -> str:
        Keyring(text)
        return text

    @property
    def keyring(self) -> Keyring:
        """The signing keys."""
        return Keyring(self.signing_keys)

    @model_validator(mode="after")
    def _find_redis(self) -> Self:
        if not self.redis_url and self.redis_url_file is not None:
            object.__setattr__(self, "redis_url", _read_url(self.redis_url_file))
        if not self.redis_url:
            object.__setattr__(self, "redis_url", stack_redis_url(self.home) or DEFAULT_REDIS_URL)
        elif not self.redis_url.startswith(("redis://", "rediss://", "unix://", SCHEME)):
            raise ValueError("redis_url must start with redis://, rediss://, unix:// or sentinel://")
        _check_password(self.redis_url)
        if self.redis_url.startswith(SCHEME):
            SentinelUrl.parse(self.redis_url)
        _check_certificates(self.redis_url)
        return self


class ClientSettings(Settings):
    """What :func:`readie.configure` takes."""

    client: str = Field(default="", max_length=64)
    """Name of whoever calls: clients take turns when calls wait. Default: the user in ``READIE_REDIS_URL``."""
    max_payload_bytes: int = Field(default=256 * 1024 * 1024, ge=1024)
    """Largest pickled function with its arguments."""


def _check_password(url: str) -> None:
    """Refuse a URL whose password ends too soon: whoever reads it on would take its rest for something to be shown."""
    try:
        parts = urlsplit(url)
        cut = not url.startswith("unix://") and "@" in url and "@" not in parts.netloc
        if not url.startswith((SCHEME, "unix://")):
            _ = parts.port  # raises when it is no number
    except ValueError:
        cut = True
    if cut or "#" in url:
        raise ValueError(
            "redis_url can't be read: after redis:// come USER:PASSWORD@HOST:PORT/DATABASE. In a password, write / as "
            "%2F, ? as %3F, # as %23, @ as %40, [ as %5B and % as %25"
        )


def _check_certificates(url: str) -> None:
    """Say at once what would only look like a Redis that can't be reached."""
    query = parse_qs(urlsplit(url).query)
    for name in ("ssl_ca_certs", "ssl_certfile", "ssl_keyfile"):
        for file in query.get(name, ()):
            try:
                Path(file).read_bytes()
            except OSError as error:
                raise ValueError(f"redis_url: {name} can't be read: {file}: {error.strerror}") from error
    if query.get("ssl_cert_reqs", ["required"])[-1] not in ("required", "optional", "none"):
        raise ValueError("redis_url: ssl_cert_reqs must be required, optional or none")


def _read_url(file: Path) -> str:
    try:
        url = file.read_text().strip()
    except OSError as error:
        raise ValueError(f"redis_url_file can't be read: {file}: {error.strerror}") from error
    if not url:
        raise ValueError(f"redis_url_file is empty: {file}")
    return url


class ServiceSettings(Settings):
    """What the processes of a cluster share that log."""

    log_format: LogFormat = "text"
    """``json``: each line of the log is an object, with its values and the call's id as fields."""
    log_level: Literal["DEBUG", "INFO", "WARNING", "ERROR"] = "INFO"
    """The least severe lines that are logged."""


class ResultSettings(ServiceSettings):
    """What router and worker share."""

    result_seconds: int = Field(default=3600, ge=1)
    """How long the result of a call stays, and what it has printed."""
    signature_seconds: int = Field(default=3600, ge=1)
    """How long after it was signed a call may begin, where there are signing keys. Not more than
    ``READIE_RESULT_SECONDS``: whether a call has run before is known only as long as its record is kept."""
    metrics_address: str = Field(default="", pattern=r"^(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9.-]+):[0-9]{1,5}$|^$")
    """``HOST:PORT`` where ``/metrics``, ``/healthz`` and ``/readyz`` answer whoever reaches it. Default: none."""


class FlavorSettings(Settings):
    """What worker and pipeline share: where flavors and generations lie, and the shape of sandboxes."""

    data: Path = Field(default_factory=default_data)
    """The folder of the flavors' filesystems and of the generations. Default: ``$XDG_DATA_HOME/readie``."""
    flavor: str = Field(default="default", pattern=r"^[a-z0-9][a-z0-9._-]*$")
    """Name of the flavor that is served, or that a generation is made for."""
    runsc: Path | None = None
    """gVisor's runsc. Default: the one beside this Python, else the first on PATH."""
    sandbox_network: Literal["none", "sandbox", "host"] = Field(default="none", validation_alias="SANDBOX_NETWORK")
    """What functions reach. ``none``: nothing; ``sandbox``: the public internet, nothing nearer; ``host``: whatever
    this machine reaches, Redis too. Part of the sandboxes' shape: other checkpoints are needed."""
    allow_host_network: bool = False
    """Must be set as well for ``SANDBOX_NETWORK`` to be ``host``."""
    sandbox_overlay: Literal["root:memory", "none"] = Field(default="root:memory", validation_alias="SANDBOX_OVERLAY")
    """runsc's overlay over sandboxes' root filesystem. Part of the sandboxes' shape: other checkpoints are needed."""
    sandbox_gpu: Literal["none"] = Field(default="none", validation_alias="SANDBOX_GPU")
    """GPU of the sandboxes: ``none``. Part of the shape that checkpoints are captured with."""

    @model_validator(mode="after")
    def _resolve(self) -> Self:
        if self.sandbox_network == "host" and not self.allow_host_network:
            raise ValueError(
                "SANDBOX_NETWORK=host lets every function reach Redis and this machine's network; "
                "set READIE_ALLOW_HOST_NETWORK=true as well if that is wanted, or use SANDBOX_NETWORK=sandbox"
            )
        # Programs that run elsewhere, such as runsc, are told of it.
        object.__setattr__(self, "data", self.data.absolute())
        return self
