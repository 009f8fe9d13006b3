"""The ``readie`` command. One module for each subcommand; ``app`` puts them together.

Exit statuses: 0 done; 1 it failed, or what it found is bad; 2 a wrong option or setting; 3 (``status``) nothing runs,
(``doctor``) there are warnings; 4 Redis can't be reached, or no router answers; 130 the user interrupted it. Errors are
one message on standard error.
What a command needs is imported when it runs: ``readie --help`` and the shell's completion must not wait for it.
"""


def main() -> None:
    """Run the command that the arguments ask for, and exit with its status."""
    from .app import run  # noqa: PLC0415

    run()
