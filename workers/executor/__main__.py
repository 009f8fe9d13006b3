"""The executor's life: import, be snapshotted, repair, open the socket, run calls one after another."""

from __future__ import annotations

import gc
import os
import socket
import sys
import time
import traceback
from pathlib import Path

from readie import hooks
from workers.executor import address_space, calls, control, imports, layer, layout, stdio, wire
from workers.executor.repair import Repair
from workers.executor.session import SessionGlobals, at_rest
from workers.executor.values import Values
from workers.executor.wire import Kind


def main(control_dir: Path = layout.CONTROL_DIR) -> None:
    """Run until the worker closes its connection."""
    stdio.write_by_line()
    try:
        with stdio.silenced():
            listener, hello = _get_ready(control_dir)
    except BaseException:
        control.write_failure(control_dir, traceback.format_exc())
        raise
    connection, _ = listener.accept()
    listener.close()
    with connection:
        wire.send_json(connection, Kind.HELLO, hello)
        _serve(connection)


def _get_ready(control_dir: Path) -> tuple[socket.socket, dict[str, object]]:
    imported: object = []
    repair: Repair | None = None
    names = control.read_imports(control_dir)
    if names is not None:
        report = imports.import_modules(names)
        imported = report["imported"]
        hooks.run_before_snapshot()
        gc.collect()
        repair = Repair.survey()
        # What was imported stays: no later collection needs to read (and so copy in) all of its pages.
        gc.freeze()
        control.write_imported(control_dir, report)
    start = control.wait_for_go(control_dir)
    # Connecting takes a while; meanwhile there is time for repairs. The greeting says that they are done.
    listener = control.listen(control_dir)
    repair_seconds = 0.0
    if start == "restored" and repair is not None:
        began = time.perf_counter()
        repair.apply()
        hooks.run_after_restore()
        repair_seconds = time.perf_counter() - began
    hello: dict[str, object] = {
        "wire": wire.WIRE_VERSION,
        "python": ".".join(map(str, sys.version_info[:3])),
        "start": start,
        "imported": imported,
        "repair_seconds": repair_seconds,
    }
    return listener, hello


def _serve(connection: socket.socket) -> None:
    own_pid = os.getpid()
    session: SessionGlobals | None = None
    while True:
        try:
            call = _next_call(connection)
        except (wire.ConnectionEndedError, ConnectionResetError):
            return
        frame = wire.read_frame(connection, Kind.PAYLOAD, max_bytes=wire.MAX_FRAME_BYTES)
        if isinstance(more_bytes := call.get("address_space_bytes"), int):
            address_space.bound(more_bytes)
        if isinstance(path := call.get("layer"), str):
            layer.use(path)
        credit = call.get("credit")
        if call.get("session") and session is None:
            session = SessionGlobals()
        ended = calls.run(
            frame.payload,
            Values(connection, credit) if isinstance(credit, dict) else None,
            session.load if session else None,
        )
        if os.getpid() != own_pid:
            # A function that forks and returns in its child as well must not answer twice.
            os._exit(0)
        stdio.flush()
        result = ended.result
        if session is not None:
            result = {**result, "ignored_globals": session.take_ignored(), "at_rest": at_rest()}
        wire.send_json_and_frame(connection, (Kind.RESULT, result), (Kind.VALUE, ended.value))
        # Nothing of a call is kept while waiting for the next one.
        del frame, ended


def _next_call(connection: socket.socket) -> dict[str, object]:
    while True:
        # Credit may have been on its way to a call that has ended meanwhile.
        frame = wire.read_frame(connection, Kind.CALL, Kind.CREDIT, max_bytes=wire.MAX_JSON_BYTES)
        if frame.kind is Kind.CALL:
            return wire.json_object(frame)


if __name__ == "__main__":
    # Python runs with -S, so that the host's own packages stay out of sight. What else site does is done here:
    # help(), exit() and the .pth files of the flavor's packages.
    import site

    site.sethelper()
    site.setquit()
    site.addsitedir(str(layout.PACKAGES_DIR))
    main()
    sys.exit(0)
