"""Sandboxes: runsc containers in which an executor runs.

``host.SandboxHost`` makes them and takes them away, all those of one worker on this machine; ``supply.SandboxSupply``
gives them to calls. ``shape`` says what a sandbox looks like, ``spec`` writes that for runsc, ``fingerprint`` names it;
``runsc`` runs the tool; ``sandbox`` is one sandbox's life and ``connection`` the talk with its executor; ``cgroup``
bounds what it uses; ``remover`` takes it away. Of a supply, ``created`` and ``ready`` are the pools, ``demand`` and
``stock`` decide what is kept ready, ``refill`` makes it and gives way to ``traffic``, ``starter`` is a call's way to
its sandbox, and ``quarantine`` knows the images that are of no use.
"""
