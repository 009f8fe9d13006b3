"""The header of a call: all that router and worker may know of it. The payload stays opaque to both."""

from collections.abc import Iterable
from typing import Annotated, Final

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, field_validator

from .owner import ID_PATTERN

PROTOCOL_VERSION: Final = 1
"""Newest version of what clients, routers and workers write to each other, and that this release reads.

Releases run side by side during an upgrade (workers first, then routers, then clients), so what one of them writes,
those before and after it read. Within a version a field may be added that has a default: who does not know it leaves it
out of account, but for what a caller asks for (:class:`Asked`). Any other change (a field that goes or means something
else, a new value of an enumeration) is a new version. A client writes the oldest version that has all that its call
uses, and is answered in that one.
"""
INLINE_LIMIT_BYTES: Final = 8 * 1024
"""Payloads and results up to this size travel in the message, larger ones as a Redis value."""
DEFAULT_FLAVOR: Final = "default"
MOST_PACKAGES: Final = 100
PACKAGE_PATTERN: Final = r"^[A-Za-z0-9][A-Za-z0-9._-]*(\[[A-Za-z0-9._, -]*\])?[A-Za-z0-9.,<>=!~*+ -]*$"
"""A name, extras and versions; nothing that leads elsewhere than to the index."""
FLAVOR_PATTERN: Final = r"^[a-z0-9][a-z0-9._-]{0,63}$"


PackageRequirement = Annotated[str, StringConstraints(pattern=PACKAGE_PATTERN, max_length=256)]


class Message(BaseModel):
    """Base of everything that crosses a process border: immutable; a newer release's fields are left out of account."""

    model_config = ConfigDict(frozen=True, extra="ignore")


class Asked(Message):
    """Base of what a caller asks for: a field that is not known is an error, as to leave it out would be wrong."""

    model_config = ConfigDict(extra="forbid")


class ImportHints(Message):
    """What the client's scan found; full dotted names, resolved by the router."""

    imports: tuple[str, ...] = ()
    models: tuple[str, ...] = ()
    tokenizers: tuple[str, ...] = ()
    datasets: tuple[str, ...] = ()


class RetryPolicy(Asked):
    """When a call that had begun and failed may begin again."""

    times: int = Field(ge=0, le=1000)
    """How often, besides the first time."""
    after: tuple[str, ...]
    """Qualified names of the exception classes after which it may, those below them included."""
    delay_seconds: float = Field(default=0.0, ge=0, allow_inf_nan=False)
    """Before the first time; each further one waits ``factor`` times longer."""
    factor: float = Field(default=2.0, ge=1, allow_inf_nan=False)
    longest_delay_seconds: float = Field(default=60.0, ge=0, allow_inf_nan=False)

    def delay_after(self, begun: int, classes: Iterable[str]) -> float | None:
        """Return the seconds after which the call is to run again, ``None``: it is not.

        Args:
            begun: how often it has begun by now.
            classes: qualified names of the error's class and all its bases.
        """
        if begun > self.times or set(self.after).isdisjoint(classes):
            return None
        delay = self.delay_seconds
        for _ in range(begun - 1):
            delay = min(delay * self.factor, self.longest_delay_seconds)
        return min(delay, self.longest_delay_seconds)


class CallOptions(Asked):
    """Options that decide where and how a call runs."""

    timeout_seconds: float | None = Field(default=None, gt=0, le=1e9)
    """Longest execution; the sandbox is killed after it."""
    expires_seconds: float | None = Field(default=None, gt=0, le=1e9)
    """The call is dropped when no worker has begun it this long after its submission."""
    priority: int = Field(default=0, ge=0, le=9)
    """Of the calls that wait, those with a higher one run first."""
    flavor: str = Field(default=DEFAULT_FLAVOR, pattern=FLAVOR_PATTERN)
    memory_bytes: int | None = Field(default=None, gt=0, le=2**53)
    """What the sandbox may hold; the worker reserves it. ``None``: what the worker gives by itself."""
    cpu: float | None = Field(default=None, gt=0, le=10_000)
    """Cores the sandbox may use. ``None``: what the worker gives by itself."""
    packages: tuple[PackageRequirement, ...] = Field(default=(), max_length=MOST_PACKAGES)
    """What the function needs besides its flavor."""
    gpu: bool = False
    """Only where sandboxes have a GPU."""
    retries: RetryPolicy | None = None
    """``None``: what had begun is not run again."""
    checkpoint_id: str | None = Field(default=None, min_length=1, max_length=64)
    disable_optimized_execution: bool = False


class SessionUse(Asked):
    """What a call says of the session that it belongs to."""

    id: str = Field(pattern=f"^{ID_PATTERN}$")
    idle_ttl_seconds: float = Field(gt=0, allow_inf_nan=False)
    """For whoever opens it."""
    may_open: bool = True
    """Whether the call opens the session if there is none."""
    restart_on_loss: bool = False
    """Whether the call opens it again if it was lost."""
    sandbox: str = ""
    """The sandbox that the caller knows the session by; a session in another one is not the caller's."""
    checkpoint_id: str | None = None
    """The checkpoint that the call itself asks for. In the options is the one to open the session with."""
    disable_optimized_execution: bool = False
    """Likewise."""


class Placement(Message):
    """A router's decision, written into the header before it is republished to a worker's queue."""

    worker: str
    incarnation: str
    """The worker process the call was placed on; a later process of the same name refuses it."""
    attempt: int = Field(ge=1)
    checkpoint_id: str | None
    """Checkpoint to restore; ``None`` starts cold."""
    reason: str
    predicted_seconds: float | None = None
    """Predicted time until the function's first line; ``None`` without a catalogue."""
    route_seconds: float = 0.0
    sandbox: str | None = None
    """The sandbox of the call's session; ``None`` starts one."""
    restarted: str | None = None
    """Why the session that the call opens was lost before."""
    signature: str | None = Field(default=None, max_length=128)
    """The router's, where there are keys: the key's id, a colon, the hex digits of the code."""


class CallSignature(Message):
    """The client's signature of a call; see :mod:`readie.protocol.signing`."""

    key: str = Field(max_length=32)
    """The key's id."""
    at: float = Field(allow_inf_nan=False)
    """When it was signed: client's clock, seconds since the epoch."""
    payload: str = Field(max_length=64)
    """SHA-256 of the payload, hex."""
    mac: str = Field(max_length=64)
    """The code, hex."""


class CallHeader(Message):
    """Everything about a call but its function and arguments."""

    protocol: int = Field(ge=1)
    id: str = Field(pattern=f"^{ID_PATTERN}$")
    name: str = Field(max_length=256)
    """The function's qualified name, for people."""
    python: str = Field(pattern=r"^\d+\.\d+$")
    """The client's Python, ``major.minor``: pickled code runs on the same minor only."""
    hints: ImportHints = ImportHints()
    options: CallOptions = CallOptions()
    session: SessionUse | None = None
    client: str = Field(default="", max_length=64)
    """Who it is from: the calls of different clients take turns."""
    payload_bytes: int = Field(ge=0)
    payload_by_reference: bool
    """Whether the payload is the Redis value ``keys.payload(id)`` instead of the message's body."""
    streams: bool = False
    """Whether the client reads values while they are yielded; the worker then waits for it."""
    signature: CallSignature | None = None
    placement: Placement | None = None
    traceparent: str | None = Field(default=None, pattern=r"^00-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}$")
    """The span of the call, as the W3C writes it, where the client traces; router and worker add theirs below it."""

    @field_validator("protocol")
    @classmethod
    def _check_protocol(cls, protocol: int) -> int:
        if protocol > PROTOCOL_VERSION:
            raise ValueError(
                f"version {protocol} is newer than {PROTOCOL_VERSION}, the newest that this release reads: "
                "upgrade workers and routers before clients"
            )
        return protocol
