"""The worker's side of the talk with an executor. What comes from there is checked and never unpickled."""

from __future__ import annotations

import socket
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Annotated, Final, Literal, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from readie.protocol.payload import Buffer
from workers.executor import wire
from workers.executor.wire import Frame, Kind, WireError
from workers.sandbox.conversation import Conversation, Deaf, Listener
from workers.sandbox.output import OutputPipe

_Message = TypeVar("_Message", bound="_FromExecutor")

DEFAULT_MAX_RESULT_BYTES = 1 << 30
_MOST_NAME_CHARACTERS: Final = 2 << 10
_MOST_MESSAGE_CHARACTERS: Final = 128 << 10
_MOST_TRACEBACK_CHARACTERS: Final = 512 << 10
_MOST_BASES: Final = 64
"""An executor cuts what it says to less. A function that speaks in its place could fill Redis and Flower with it."""


def _speakable(text: object) -> object:
    """Write half characters out: they can't be encoded, and a function may raise an error that has some."""
    return text.encode("utf-8", "backslashreplace").decode() if isinstance(text, str) else text


_Text = Annotated[str, BeforeValidator(_speakable)]
_Name = Annotated[_Text, Field(max_length=_MOST_NAME_CHARACTERS)]
_Seconds = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class ConnectionLostError(Exception):
    """The executor's end of the connection is gone: its process, or the whole sandbox, has ended."""


class _FromExecutor(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")


class Hello(_FromExecutor):
    """The executor's first frame. ``python`` is a full version; ``imported`` what its checkpoint holds."""

    wire: int
    python: str
    start: Literal["restored", "started"]
    imported: list[str]
    repair_seconds: _Seconds


class CallError(_FromExecutor):
    """Why a call has no value.

    ``raised`` by the function; ``deserialization``: its pickle needs something that the sandbox does not have;
    ``serialization``: what it returned can't be pickled.
    """

    code: Literal["raised", "serialization", "deserialization"]
    type: _Name
    module: _Name
    bases: list[_Name] = Field(default=[], max_length=_MOST_BASES)
    """Qualified names of its class and of all that this is derived from."""
    message: _Text = Field(max_length=_MOST_MESSAGE_CHARACTERS)
    traceback: _Text = Field(max_length=_MOST_TRACEBACK_CHARACTERS)


class ResultHeader(_FromExecutor):
    """The RESULT frame."""

    outcome: Literal["ok", "error"]
    load_seconds: _Seconds
    execute_seconds: _Seconds
    dump_seconds: _Seconds
    error: CallError | None
    ignored_globals: list[_Text] = []
    """Names that a function brought and that its session had with another value."""
    at_rest: bool = False
    """Nothing goes on between this call of a session and the next: no thread, no child."""


@dataclass(frozen=True)
class CallResult:
    """How a call ended. ``value`` is a payload container of the value, or of the exception and then maybe empty."""

    header: ResultHeader
    value: Buffer

    @property
    def outcome(self) -> Literal["ok", "error"]:
        """Whether ``value`` holds the function's value or there is an ``error``."""
        return self.header.outcome

    @property
    def error(self) -> CallError | None:
        """What went wrong, or None."""
        return self.header.error


class ExecutorConnection:
    """A connection to one executor, for one call at a time. It is of no more use after any of its errors."""

    def __init__(self, connection: socket.socket, output: OutputPipe, *, deadline: float) -> None:
        """Read the greeting from ``connection``, which is then this object's to close.

        ``output`` is what the executor prints to. ``deadline`` is a ``time.monotonic()`` value. Raises
        ``ConnectionLostError``, ``WireError`` (also for another version of the wire protocol) or ``TimeoutError``.
        """
        self._connection = connection
        self._output = output
        self.address_space_bytes: int | None = None
        """What a process of the next calls may map beyond what it has mapped; ``None`` without limit."""
        self.layer: str | None = None
        """Folder in the sandbox with packages for the next calls."""
        try:
            self.hello = self._receive(Kind.HELLO, Hello, deadline)
            if self.hello.wire != wire.WIRE_VERSION:
                raise WireError(
                    f"the executor speaks wire version {self.hello.wire}, this worker {wire.WIRE_VERSION}; "
                    "build the flavor and its checkpoints again"
                )
        except BaseException:
            connection.close()
            raise

    def call(
        self,
        call_id: str,
        name: str,
        payload: Sequence[Buffer],
        *,
        timeout: float | None = None,
        max_result_bytes: int = DEFAULT_MAX_RESULT_BYTES,
        listener: Listener | None = None,
        session: bool = False,
    ) -> CallResult:
        """Run the call whose payload container is the joined ``payload`` and return how it ended.

        ``timeout`` seconds bound the whole, None does not; ``listener`` hears of what happens until then, all of it
        also when this raises. Raises ``TimeoutError`` (the function still runs: kill the sandbox), ``UnwantedError``
        (likewise), ``ConnectionLostError``, ``WireError``, ``FrameTooLargeError`` (a value or result above
        ``max_result_bytes``). In a ``session`` functions share one globals dict.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        listener = listener or Deaf()
        conversation = Conversation(self._connection, self._output, listener, deadline)
        head: dict[str, object] = {"id": call_id, "name": name, "session": session}
        if self.address_space_bytes is not None:
            head["address_space_bytes"] = self.address_space_bytes
        if listener.credit is not None:
            head["credit"] = asdict(listener.credit)
        if self.layer is not None:
            head["layer"] = self.layer
        try:
            wire.send_json_and_frame(self._connection, (Kind.CALL, head), (Kind.PAYLOAD, payload), deadline=deadline)
            header = _parse(conversation.until_result(max_result_bytes), ResultHeader)
            frame = wire.read_frame(self._connection, Kind.VALUE, max_bytes=max_result_bytes, deadline=deadline)
        except TimeoutError:
            raise
        except (OSError, wire.ConnectionEndedError) as error:
            raise ConnectionLostError(str(error)) from error
        finally:
            conversation.take_output()
        if (header.outcome == "ok") != (header.error is None):
            raise WireError(f"a RESULT frame has the outcome {header.outcome!r} but error is {header.error!r}")
        return CallResult(header, frame.payload)

    def close(self) -> None:
        """Close the connection; the executor ends then."""
        self._connection.close()

    def _receive(self, kind: Kind, model: type[_Message], deadline: float | None) -> _Message:
        try:
            return _parse(
                wire.read_frame(self._connection, kind, max_bytes=wire.MAX_JSON_BYTES, deadline=deadline), model
            )
        except TimeoutError:
            raise
        except wire.FrameTooLargeError as error:
            # What the executor sends is never that large: only a value may be.
            raise WireError(str(error)) from None
        except (OSError, wire.ConnectionEndedError) as error:
            raise ConnectionLostError(str(error)) from error


def _parse(frame: Frame, model: type[_Message]) -> _Message:
    try:
        return model.model_validate(wire.json_object(frame))
    except ValidationError as error:
        problem = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(map(str, problem["loc"]))
        # Without what was sent: that may be megabytes, of anything.
        raise WireError(f"a {frame.kind.name} frame is not as agreed: {where}: {problem['msg']}"[:500]) from None
