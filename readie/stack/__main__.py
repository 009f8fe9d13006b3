"""``python -m readie.stack OPTIONS CONTROL_FD``: the supervisor process is put together here. ``launch`` starts it."""

import logging
import os
import socket
import sys
from pathlib import Path

from readie.connection import connect
from readie.monitoring.log_lines import write_log

from .control import Control, Event
from .processes import identify, wait_gone
from .programs import find_redis_server, flower_url, free_port, make_flower_password, programs, redis_url
from .readiness import Readiness
from .settings import StackOptions, load_settings
from .state import StackError, StackState, living, owning, read_state, write_state
from .supervisor import Supervisor
from .teardown import remove_sandboxes, stop_in_order

_PROBE_TIMEOUT_SECONDS = 0.5


def main() -> int:
    """Run one stack; return the exit status."""
    options = StackOptions.model_validate_json(sys.argv[1])
    connection = socket.socket(fileno=int(sys.argv[2]))
    # It was made to outlive exec; the parts must not hold it, or the command would not see this process end.
    connection.set_inheritable(False)
    control = Control(connection)
    settings = load_settings()
    write_log(settings.log_format, settings.log_level)
    try:
        with owning(options.home) as ours:
            if not ours:
                control.send(Event(kind="already_running"))
                return 1
            _stop_leftovers(options.home, control)
            return _supervise(options, control)
    except (StackError, OSError) as error:
        control.send(Event(kind="failed", text=str(error)))
        logging.getLogger(__name__).error("%s", error)
        return 1


def _stop_leftovers(home: Path, control: Control) -> None:
    """Stop the parts of an earlier supervisor that was killed."""
    state = read_state(home)
    if state is None:
        return
    stopped = stop_in_order(living(state), wait_gone, lambda _: None)
    remove_sandboxes(state.run)
    if stopped:
        control.send(Event(kind="cleaned", text=", ".join(stopped)))


def _supervise(options: StackOptions, control: Control) -> int:
    redis_server = find_redis_server(options.redis_server)
    port = options.redis_port or free_port()
    (options.home / "redis").mkdir(mode=0o700, exist_ok=True)
    own = identify(os.getpid())
    assert own is not None
    flower = None if options.flower_port is None else flower_url(options.flower_port)
    if flower is not None:
        make_flower_password(options.home)
    state = StackState(redis_url=redis_url(port), run=options.run, flower_url=flower, supervisor=own)
    # A disk that can't be written ends the start here, before anything runs.
    write_state(options.home, state)
    redis = connect(state.redis_url, name="readie-supervisor", timeout_seconds=_PROBE_TIMEOUT_SECONDS, retries=0)
    readiness = Readiness(redis, flower)
    return Supervisor(options.home, state, programs(options, redis_server, port), readiness, control).run()


if __name__ == "__main__":
    sys.exit(main())
