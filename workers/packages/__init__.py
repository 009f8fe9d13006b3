"""``packages=`` of a call: what its flavor lacks, installed once into a layer that later calls share.

``layers.PackageLayers`` gives a call its layer. ``requirements`` decides what is to be installed and under which name;
``store`` keeps layers on disk; ``build`` makes one in a sandbox, in which ``installer`` runs uv and from which
``index_proxy`` is the only way out.
"""
