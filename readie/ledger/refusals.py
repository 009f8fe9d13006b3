"""What Redis says when it does not do what it was asked for."""

from typing import Final

from redis.exceptions import NoScriptError, OutOfMemoryError, ReadOnlyError, ResponseError

_OF_ITS_STATE: Final = (
    "MISCONF",
    "NOREPLICAS",
    "CLUSTERDOWN",
    "NOPERM",
    "NOAUTH",
    "MASTERDOWN",
    "TRYAGAIN",
    "BUSY",
    "LOADING",
)


def about_the_call(error: Exception) -> bool:
    """Return whether it is this one call that Redis refused: its record is not one of ours, and never will be."""
    if not isinstance(error, ResponseError) or isinstance(error, (ReadOnlyError, OutOfMemoryError, NoScriptError)):
        return False
    return not str(error).startswith(_OF_ITS_STATE)
