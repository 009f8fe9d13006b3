"""Offline: makes a generation of a flavor (``python -m workers.pipeline``).

In the order of the work: ``flavor`` reads the flavor's folder and ``uv`` pins and installs its requirements;
``filesystem`` builds what sandboxes see, and ``digest`` names it, with the ``libraries`` of the host that it loads.
``survey`` says what a plan is made from: ``installed`` lists the modules, ``measure`` imports them, with ``probe``
inside the sandbox and ``runs`` to remember it, and ``attribution`` shares out what that took; ``cost`` fits the model.
``corpus`` says what is wanted, ``demand`` what that costs, and ``plan`` chooses. ``images`` captures, in the sandboxes
of ``capture``, and ``write`` publishes. ``build`` puts all this together; ``progress`` and ``outcome`` show it.
"""
