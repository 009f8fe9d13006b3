"""The client: one connection pool to Redis, one ledger, one listener for results."""

import base64
import contextlib
import functools
import os
import socket
import threading
import time
import uuid
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, Final, cast
from urllib.parse import urlsplit

from pydantic import ValidationError

from .call import Call, CallStatus, Submission
from .connection import CLUSTER, connect, in_cluster_mode, reaching_redis, without_password
from .endings import Endings
from .errors import (
    ClusterUnavailableError,
    ConfigurationError,
    InvalidRequestError,
    ResourceExhaustedError,
    ResultExpiredError,
    SignatureError,
)
from .explanation import Explanation
from .header import make_header, own_modules
from .hints import Hints
from .ledger import Ledger
from .options import Options
from .pickling import dump_function, pickle_call
from .protocol import keys, task
from .protocol.call import INLINE_LIMIT_BYTES
from .protocol.envelope import Envelope
from .protocol.explain import ExplainRequest
from .protocol.owner import owned, owner_of_user
from .protocol.payload import total_size
from .protocol.signing import BadSignatureError, result_part
from .reading import Reading
from .replies import Replies
from .sessions import Session, current_session
from .settings import ClientSettings
from .sizes import format_bytes

if TYPE_CHECKING:
    from .tracing import ClientTraces

_ANSWER_SECONDS = 4.0
"""How long Redis may take for one answer before it counts as unreachable."""
_ROUTER_ANSWER_SECONDS: Final = 3
_ORIGIN = f"{os.getpid()}@{socket.gethostname()}"
_clients: "weakref.WeakSet[Client]" = weakref.WeakSet()


class Client:
    """A connection to one cluster. Thread-safe; opens nothing before the first call; a forked child has its own.

    Args:
        **settings: fields of :class:`readie.settings.ClientSettings`, such as ``redis_url``; they win
            over ``READIE_*``.

    Raises:
        ConfigurationError: a wrong setting.

    Example:
        ```python
        client = readie.Client(redis_url="redis://cluster:6379/0")
        print(client.get_call(call_id).result())
        client.close()
        ```
    """

    def __init__(self, **settings: Any) -> None:
        unknown = settings.keys() - ClientSettings.model_fields.keys()
        if unknown:
            known = ", ".join(ClientSettings.model_fields)
            raise ConfigurationError(f"unknown settings: {', '.join(sorted(unknown))}; known: {known}")
        try:
            self.settings = ClientSettings(**settings)
        except ValidationError as error:
            wrong = error.errors()[0]
            where = ".".join(map(str, wrong["loc"]))
            what = wrong["msg"].removeprefix("Value error, ")
            raise ConfigurationError(f"setting {where + ': ' if where else ''}{what}") from None
        self._traces = _traces() if self.settings.tracing else None
        self._enter_process()
        _clients.add(self)

    def _enter_process(self) -> None:
        self._redis = connect(self.settings.redis_url, name="readie-client", timeout_seconds=_ANSWER_SECONDS)
        user = urlsplit(self.settings.redis_url).username
        self._name = (self.settings.client or user or "")[:64]
        self._owner = owner_of_user(user)
        self._is_no_cluster = False
        """Whether Redis has said so."""
        self._ledger = Ledger(self._redis)
        self._replies = Replies(self._redis, self._ledger, self._owner)
        self._endings = Endings(self._redis, self._owner)
        self._keyring = self.settings.keyring
        self.reading = Reading(self._redis, self._replies, self.settings.redis_url, self._keyring, self._endings)

    def __repr__(self) -> str:
        return f"<readie.Client {without_password(self.settings.redis_url)}>"

    def close(self) -> None:
        """Stop listening and close the connections. Calls go on, but for generators that are read from here."""
        self.reading.close()
        self._replies.close()
        self._redis.close()

    def submit(
        self,
        function: Callable[..., Any],
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        options: Options,
        hints: Callable[[], Hints],
    ) -> Call[Any]:
        """Send one call.

        Args:
            function: the user's own function.
            args: its positional arguments.
            kwargs: its keyword arguments.
            options: how it is to run.
            hints: gives what the scan of the function found.

        Raises:
            SerializationError: the function or an argument can't be pickled.
            InvalidRequestError: retries in a session.
            ResourceExhaustedError: function and arguments are above the limit.
            ClusterUnavailableError: Redis can't be reached.
        """
        began = time.perf_counter()
        session = options.session or current_session()
        if session is not None and options.retries:
            raise InvalidRequestError(
                "retries can't be used in a session: a failed call may have changed what the next ones find there; "
                "leave retries out, or call it outside of the session"
            )
        pickled = pickle_call(function, args, kwargs)
        found = hints()
        own = own_modules(found, pickled.modules, options)
        payload = pickled.payload(options.env or {}, own.packed)
        size = total_size(payload)
        if size > self.settings.max_payload_bytes:
            raise ResourceExhaustedError(
                f"function and arguments are {format_bytes(size)} when pickled, above the limit of "
                f"{format_bytes(self.settings.max_payload_bytes)}; send less, or raise READIE_MAX_PAYLOAD_BYTES"
            )
        inline = size <= INLINE_LIMIT_BYTES
        call_id = self._new_id()
        header = make_header(
            call_id, function, options, found, own, payload_bytes=size, client=self._name, session=session
        )
        if header.session is not None:
            use = header.session.model_copy(update={"id": owned(self._owner, header.session.id)})
            header = header.model_copy(update={"session": use})
        traced = self._traces.begin(call_id, header.name, began) if self._traces else None
        if traced is not None:
            header = header.model_copy(update={"traceparent": traced.traceparent})
        header = self._keyring.sign_call(header, payload)
        message = task.encode(header, task.encode_body(b"".join(payload) if inline else None), _ORIGIN)
        serialized = time.perf_counter()
        end = self._replies.expect(call_id)
        news = self._replies.news(call_id) if options.stream_logs else None
        try:
            with self._reaching_redis():
                self._ledger.submit(
                    call_id,
                    message,
                    self._replies.client_id,
                    None if inline else payload,
                    options.expires,
                    listens=options.stream_logs,
                    name=header.name,
                    client=header.client,
                )
        except BaseException as error:
            self._replies.forget(call_id)
            if traced is not None:
                traced.failed(error)
            raise
        accepted = time.perf_counter()
        if traced is not None:
            traced.submitted(end)
        self._replies.submitted(call_id)
        call: Call[Any] = Call(self, call_id, end, Submission(began, serialized, accepted), session)
        if session is not None:
            end.add_done_callback(functools.partial(_learn, session))
        if news is not None:
            call.print_output(header.name, news)
        return call

    def explain(self, function: Callable[..., Any], options: Options, hints: Hints) -> Explanation:
        """Ask a router what it would do with a call of a function now; see :meth:`readie.RemoteFunction.explain`."""
        request_id = self._new_id()
        referred: set[str] = set()
        dump_function(function, referred)
        own = own_modules(hints, referred, options)
        header = make_header(request_id, function, options, hints, own, payload_bytes=0, client=self._name)
        header = self._keyring.sign_call(header, ())
        request = ExplainRequest(task=keys.EXPLAIN_TASK, id=request_id, header=header)
        with self._reaching_redis():
            self._redis.lpush(keys.SUBMIT_QUEUE, request.model_dump_json(exclude_none=True))
            answer = self._redis.blpop([keys.explanation(request_id)], timeout=_ROUTER_ANSWER_SECONDS)
        if answer is None:
            raise ClusterUnavailableError(
                f"no router answered within {_ROUTER_ANSWER_SECONDS} s; `readie status` shows what runs"
            )
        explanation = Explanation.model_validate_json(cast("tuple[bytes, bytes]", answer)[1])
        return explanation.model_copy(update={"travels": own.modules})

    def get_call(self, call_id: str) -> Call[Any]:
        """Return a call that any process submitted.

        Raises:
            ResultExpiredError: there is no such call, or its result is no longer kept.
            ClusterUnavailableError: Redis can't be reached.
        """
        return Call(self, call_id, self.attach(call_id))

    def attach(self, call_id: str) -> Future[Envelope]:
        """Return a future of a call's end; raises what :meth:`get_call` raises."""
        end = self._replies.expect(call_id)
        try:
            with self._reaching_redis():
                self._replies.look_up(call_id)
        except BaseException:
            self._replies.forget(call_id)
            raise
        if end.done() and (error := end.exception()) is not None:
            raise error
        self._replies.submitted(call_id)
        return end

    def cancel(self, call_id: str) -> bool:
        """Cancel a call; see :meth:`readie.Call.cancel`."""
        with self._reaching_redis():
            return self._endings.cancel(call_id)

    def close_session(self, session_id: str, *, may_open: bool) -> bool:
        """End a session, or one that a call on its way ``may_open``; see :meth:`readie.Session.close`."""
        with self._reaching_redis():
            return self._endings.close(owned(self._owner, session_id), may_open=may_open)

    def _new_id(self) -> str:
        return owned(self._owner, uuid.uuid4().hex)

    def status(self, call_id: str) -> CallStatus:
        """Return where a call is now; see :meth:`readie.Call.status`."""
        with self._reaching_redis():
            state, waits_for = self._ledger.state(call_id)
        if state is None:
            raise ResultExpiredError(f"call {call_id}: its record is no longer kept, or there never was such a call")
        return CallStatus(state, waits_for)

    def fetch_value(self, envelope: Envelope) -> bytes | bytearray | None:
        """Return the container of a call's pickled value or exception, ``None`` when it has none.

        Raises:
            ResultExpiredError: it is no longer kept.
            SignatureError: there are signing keys, and no worker has signed it with one.
            ClusterUnavailableError: Redis can't be reached.
        """
        if envelope.value is not None:
            return self._opened(envelope, base64.b64decode(envelope.value))
        if not envelope.value_by_reference:
            return None
        with self._reaching_redis():
            value = self._ledger.fetch_value(envelope.id, envelope.report.attempt, envelope.value_bytes)
        if value is None:
            raise ResultExpiredError(f"call {envelope.id}: its result is no longer kept")
        return self._opened(envelope, value)

    def _opened(self, envelope: Envelope, value: bytes | bytearray) -> bytes | bytearray:
        part = result_part("value" if envelope.failure is None else "error")
        try:
            return self._keyring.open(envelope.id, part, value)
        except BadSignatureError as error:
            raise SignatureError(f"call {envelope.id}: its result can't be trusted: {error}") from None

    @contextlib.contextmanager
    def _reaching_redis(self) -> Iterator[None]:
        with reaching_redis(self.settings.redis_url):
            if not self._is_no_cluster:
                if in_cluster_mode(self._redis):
                    raise ConfigurationError(CLUSTER)
                self._is_no_cluster = True
            yield


def _traces() -> "ClientTraces":
    from .tracing import ClientTraces  # noqa: PLC0415 - what it imports is there with the extra only

    return ClientTraces()


def _learn(session: Session, end: "Future[Envelope]") -> None:
    if not end.cancelled() and end.exception() is None:
        session.learn(end.result().report)


class _DefaultClient:
    """The client of functions that name none. ``_client`` is guarded by ``_lock``."""

    def __init__(self) -> None:
        self._client: Client | None = None
        self.unlock()

    def unlock(self) -> None:
        """Take a new lock: in a forked child another thread of the parent's may hold the former one for ever."""
        self._lock = threading.Lock()

    def get(self) -> Client:
        with self._lock:
            if self._client is None:
                self._client = Client()
            return self._client

    def replace(self, client: Client) -> None:
        with self._lock:
            former, self._client = self._client, client
        if former is not None:
            former.close()


_default = _DefaultClient()


def _enter_forked_child() -> None:
    """Give what is here its own connections: a child has neither the thread that listens nor a right to the sockets."""
    _default.unlock()
    for client in list(_clients):
        client._enter_process()  # noqa: SLF001


os.register_at_fork(after_in_child=_enter_forked_child)


def configure(**settings: Any) -> None:
    """Set up the client that ``@remote`` functions use from now on; takes what :class:`Client` takes.

    Raises:
        ConfigurationError: a wrong setting.

    Example:
        ```python
        readie.configure(redis_url="rediss://user:password@cluster:6380/0")
        ```
    """
    _default.replace(Client(**settings))


def default_client() -> Client:
    """Return the configured client, or one made from the environment."""
    return _default.get()


def get_call(call_id: str) -> Call[Any]:
    """Return a call by its id, from any process, also after the one that submitted it has ended.

    Raises:
        ResultExpiredError: there is no such call, or its result is no longer kept.
        ClusterUnavailableError: Redis can't be reached.

    Example:
        ```python
        print(readie.get_call("0f9b...").status())
        ```
    """
    return default_client().get_call(call_id)
