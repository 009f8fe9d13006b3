"""Generations of checkpoints on disk: what pipeline, worker and command line agree on.

::

    generations/<flavor>/current -> <generation id>        replaced in one step
    generations/<flavor>/<generation id>/
        manifest.json                                      models.Manifest
        catalogue.json                                     readie.protocol.catalogue.Catalogue
        plan.json                                          models.PlanRecord
        checkpoints/checkpoint_N/                          meta.json (models.CheckpointMeta) and gVisor's image files

``models`` are the files, ``disk`` reads them; ``publish`` makes folders that appear whole or not at all; ``store``
switches between generations and removes old ones; ``differences`` compares two.
"""
