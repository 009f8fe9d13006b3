"""``readie down``."""

# ruff: noqa: PLC0415 - see the package's docstring

from .display import console, print_json, say
from .options import AsJson


def down(as_json: AsJson = False) -> None:
    """Stop the stack of READIE_HOME, and all that is left of it.

    Workers have 30 seconds to finish their running calls.

    Exit status: 0 nothing runs any more, or nothing ran; 1 something could not be stopped.
    """
    from readie.stack.settings import load_settings
    from readie.stack.teardown import stop_stack

    home = load_settings().home.absolute()
    with console(stderr=True).status("Stopping") as spinner:
        stopped = stop_stack(home, lambda names: spinner.update(f"Stopping {names}"))
    if as_json:
        print_json(
            {
                "home": str(home),
                "ran": stopped is not None,
                "stopped": list(stopped.parts) if stopped else [],
                "without_supervisor": stopped is not None and stopped.without_supervisor,
            }
        )
    elif stopped is None:
        say(f"Nothing runs in {home}.")
    else:
        if stopped.without_supervisor:
            say("The supervisor had been killed; its parts were still there.")
        say(f"Stopped {', '.join(stopped.parts) or 'a stack that was just starting'}.")
