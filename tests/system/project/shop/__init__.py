"""A project that is installed nowhere."""

from .prices import total

__all__ = ["total"]
