"""Sandboxes: runsc containers in which an executor runs.

``host.SandboxHost`` is the way in: it owns everything of one worker on this machine. ``shape`` says what a sandbox
looks like, ``spec`` writes that for runsc, ``fingerprint`` names it; ``runsc`` runs the tool; ``sandbox`` is one
sandbox's life and ``connection`` the talk with its executor; ``created`` keeps sandboxes ready, ``remover`` takes them
away.
"""
