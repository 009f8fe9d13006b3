"""Codes of the ways a call can fail, as they travel in envelopes.

The client turns each into the exception class of the same meaning in :mod:`readie.errors`.
"""

from enum import StrEnum


class ErrorCode(StrEnum):
    """Why a call ended without a value."""

    REMOTE = "remote"
    """The function raised."""
    SERIALIZATION = "serialization"
    """The returned value can't be pickled."""
    INVALID_REQUEST = "invalid_request"
    PRECONDITION = "precondition"
    INCOMPATIBLE_PYTHON = "incompatible_python"
    RESOURCE_EXHAUSTED = "resource_exhausted"
    PACKAGE_INSTALL = "package_install"
    TIMEOUT = "timeout"
    CANCELLED = "cancelled"
    EXPIRED = "expired"
    SESSION_EXPIRED = "session_expired"
    SESSION_LOST = "session_lost"
    WORKER_LOST = "worker_lost"
    SANDBOX_DIED = "sandbox_died"
    MEMORY_LIMIT = "memory_limit"
    OTHER = "other"
    """One that a newer release has and this one does not know."""

    @classmethod
    def _missing_(cls, value: object) -> "ErrorCode":  # noqa: ARG003 - enum calls it so
        return cls.OTHER
