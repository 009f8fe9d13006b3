"""What a worker tells of its sandboxes: to `celery -A workers.app inspect`, and on its page in Flower."""

from collections.abc import Mapping
from typing import Any

from celery.worker.control import inspect_command

from readie.protocol import keys

from .control import RunningCalls
from .serving import Serving
from .settings import WorkerSettings

Answer = dict[str, Any]
"""Goes through JSON."""


class Inspection:
    """Looks at one worker. Safe to use from several threads.

    Args:
        settings: the worker's.
        serving: what it serves calls from.
        calls: those that run.
    """

    def __init__(self, settings: WorkerSettings, serving: Serving, calls: RunningCalls) -> None:
        self._settings = settings
        self._serving = serving
        self._calls = calls

    def sandboxes(self) -> list[Answer]:
        """Return each sandbox that serves a call or waits for one."""
        supply = self._serving.supply
        return [
            *({"id": name, "state": "busy", "call": call_id} for name, call_id in self._calls.sandboxes().items()),
            *({"id": name, "state": "ready", "checkpoint": from_} for name, from_ in supply.ready_ids.items()),
            *({"id": name, "state": "created"} for name in supply.created_ids),
        ]

    def pools(self) -> Answer:
        """Return how many sandboxes wait in each pool, and what there is room for."""
        supply = self._serving.supply
        return {
            "slots": self._settings.slots,
            "busy": len(self._calls.sandboxes()),
            "created": supply.created_count,
            "created_wanted": self._settings.created_sandboxes,
            "ready": _by_name(supply.ready_counts),
            "ready_bytes": supply.ready_bytes,
            "ready_bytes_limit": self._settings.ready_memory_bytes,
        }

    def checkpoints(self) -> Answer:
        """Return the generation that is served and its checkpoints; ``generation`` is ``None`` for cold starts only."""
        served = self._serving.served
        found = served.catalogue.checkpoints if served.catalogue else ()
        return {
            "flavor": self._settings.flavor,
            "generation": served.generation_id,
            "checkpoints": [
                {
                    "id": checkpoint.id,
                    "imports": list(checkpoint.imported),
                    "megabytes": checkpoint.megabytes,
                    "restore_seconds": checkpoint.restore_seconds,
                }
                for checkpoint in found
            ],
        }

    def summary(self) -> dict[str, str]:
        """Return what fits on a worker's page, by heading."""
        pools, checkpoints = self.pools(), self.checkpoints()
        return {
            "flavor": checkpoints["flavor"],
            "generation": checkpoints["generation"] or "none: every call starts cold",
            "checkpoints": "; ".join(
                f"{one['id']}: {', '.join(one['imports']) or 'no imports'}" for one in checkpoints["checkpoints"]
            ),
            "ready sandboxes": ", ".join(f"{count} x {name}" for name, count in pools["ready"].items()) or "none",
            "created sandboxes": f"{pools['created']} of {pools['created_wanted']}",
            "busy sandboxes": f"{pools['busy']} of {pools['slots']} slots",
        }


def _by_name(counts: Mapping[str | None, int]) -> dict[str, int]:
    return {name or "cold": count for name, count in counts.items()}


def _inspection(state: Any) -> Inspection:
    found: Inspection = state.app.tasks[keys.TASK_NAME].inspection
    return found


@inspect_command()  # type: ignore[untyped-decorator]
def sandboxes(state: Any, **_: Any) -> list[Answer]:
    """Each sandbox of the worker: busy with a call, ready for one, or created."""
    return _inspection(state).sandboxes()


@inspect_command()  # type: ignore[untyped-decorator]
def pools(state: Any, **_: Any) -> Answer:
    """How many sandboxes wait, by checkpoint, and the memory that they hold."""
    return _inspection(state).pools()


@inspect_command()  # type: ignore[untyped-decorator]
def checkpoints(state: Any, **_: Any) -> Answer:
    """The generation that the worker serves, and what each of its checkpoints has imported."""
    return _inspection(state).checkpoints()
