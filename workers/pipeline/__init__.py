"""Offline: makes a generation of a flavor (``python -m workers.pipeline``).

In the order of the work: ``flavor`` reads the flavor's folder and ``uv`` pins and installs its requirements;
``filesystem`` builds what sandboxes see, and ``digest`` names it, with the ``libraries`` of the host that it loads;
``capture`` takes images and restores them; ``measure`` finds what imports cost, with ``probe`` inside the sandbox and
``runs`` to remember it; ``cost`` fits the cost model; ``publish`` writes folders so that nobody sees half of one.
``build`` puts all this together, ``progress`` shows it to people.
"""
