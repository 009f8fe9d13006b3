"""The program inside a sandbox: imports modules, waits to be snapshotted, then runs calls that come over a socket.

Everything here uses the standard library, cloudpickle, ``readie.protocol`` and ``readie.hooks`` alone, because
nothing else is sure to be in a flavor's filesystem. ``wire`` is used by the worker as well.
"""
