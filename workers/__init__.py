"""The worker: a Celery app whose threads supervise sandboxes.

``app`` is what Celery loads, ``lifecycle`` puts a process together, ``runner`` takes one call from claim to result.
"""
