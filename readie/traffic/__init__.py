"""Which modules the real calls need together: routers count it, and a generation can be planned from it."""

from .counts import TrafficCounter, read_traffic

__all__ = ["TrafficCounter", "read_traffic"]
