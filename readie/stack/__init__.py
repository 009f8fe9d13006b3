"""The local stack: Redis, router and workers on one machine, kept running by one supervisor process.

``launch`` starts a supervisor, ``supervisor`` is what runs in it, ``teardown`` stops a stack whatever is left of it,
and ``overview`` says what runs. ``state`` is the file (``stack.json`` in the home) through which they find each other.
"""
