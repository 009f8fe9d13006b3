"""How good the choices of router and pools are, over a synthetic week: against other rules and against an oracle.

All rules run on the same simulated workers with the same memory for ready sandboxes and the same pool; they differ in
which checkpoints there are and which of them a call may use.
"""

from __future__ import annotations

import gzip
from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import lru_cache
from multiprocessing import get_context
from pathlib import Path
from statistics import fmean, median
from typing import Any

from readie.protocol.call import CallHeader, ImportHints
from readie.protocol.catalogue import Catalogue, Checkpoint
from router.candidates import Candidates
from router.catalogue import CompiledCatalogue
from router.needs import Needs, Nobody, Refused, WorkerState
from router.placement import Chosen, choose, ways
from router.scoring import Prediction
from workers.pipeline.corpus import Corpus, read_corpus
from workers.pipeline.cost import restore_seconds
from workers.sandbox.wanted import Source

from .oracle import oracle_starts
from .results import EXACT_MARGIN, Cell, Check, Ratio, Section, Table
from .sampling import percentile
from .simulated import Choose, Cluster, Costs, Started, make_workers
from .week import DAY_SECONDS, Week, make_week

CATALOGUE = Path(__file__).parent / "catalogue.json.gz"
"""What ``make generation`` measured and planned for the default flavor and its corpus, on a machine with two cores."""
CORPUS = Path(__file__).parent.parent / "flavors" / "default" / "corpus.jsonl"
OURS = "this router and pool"
BIG = "one big checkpoint"
WITH_BIG = "this router and pool, with the big one too"
ORACLE = "oracle"
_SANDBOX_BYTES = 40 << 20
"""As in ``workers.sources``."""
PARTS_OF_DAY = 4
_MB = 1 << 20


@dataclass(frozen=True)
class Setting:
    """A cluster and its week."""

    workers: int = 4
    slots: int = 64
    """More than any burst has calls, so that no call waits: what is compared is the start alone."""
    ready_megabytes: int = 2048
    """Of each worker; the default of one with 32 GiB or more."""
    created: int = 2
    calls_per_second: float = 0.1
    bursts_per_day: float = 12.0
    seed: int = 1


COSTS = Costs(ready_seconds=0.006, create_seconds=0.09)
"""Medians of ``make bench``: phases ``sandbox`` to ``load`` of a ready start, and ``runsc create``."""


def read_catalogue(path: Path = CATALOGUE) -> Catalogue:
    """Return the catalogue that the sections simulate."""
    return Catalogue.model_validate_json(gzip.decompress(path.read_bytes()))


@dataclass(frozen=True)
class Rule:
    """Which checkpoints there are, and how one is chosen."""

    catalogue: Catalogue
    compiled: CompiledCatalogue
    choose: Choose
    ready: bool = True
    """Whether sandboxes are started ahead."""

    @property
    def restore_seconds(self) -> dict[str | None, float]:
        """What each start takes that is not ready."""
        cost = self.catalogue.cost
        return {
            None: cost.cold_base_seconds,
            **{one.id: restore_seconds(cost, one.megabytes) for one in self.catalogue.checkpoints},
        }

    @property
    def sources(self) -> dict[str | None, Source]:
        """What ready sandboxes can be made from."""
        sizes = {None: 0.0, **{one.id: one.megabytes for one in self.catalogue.checkpoints}}
        return {
            name: Source(None, seconds, _SANDBOX_BYTES + round(sizes[name] * 1e6))
            for name, seconds in self.restore_seconds.items()
        }


def rule(catalogue: Catalogue, *, subset: bool = False, ready: bool = True) -> Rule:
    """Return the rule by which this router chooses among a catalogue's checkpoints, or the one of subsets."""
    compiled = CompiledCatalogue(catalogue)
    return Rule(catalogue, compiled, Subsets(catalogue, compiled).choose if subset else choose, ready)


def rules(catalogue: Catalogue) -> dict[str, Rule]:
    """Return what is compared; the big checkpoint has all that any of the catalogue's has."""
    everything = sorted(set[str]().union(*(one.holds for one in catalogue.checkpoints)))
    empty = next(one for one in catalogue.checkpoints if not one.imported)
    megabytes = empty.megabytes + sum(catalogue.modules[name].megabytes for name in everything)
    big = Checkpoint(
        id="checkpoint_all",
        imported=tuple(everything),
        holds=tuple(everything),
        megabytes=megabytes,
        restore_seconds=0.0,
    )

    def having(*checkpoints: Checkpoint) -> Catalogue:
        return catalogue.model_copy(update={"checkpoints": checkpoints})

    return {
        OURS: rule(catalogue),
        WITH_BIG: rule(having(*catalogue.checkpoints, big)),
        "this router, nothing ahead": rule(catalogue, ready=False),
        "OpenLambda's subset rule": rule(catalogue, subset=True),
        BIG: rule(having(big)),
        "latest checkpoint": rule(having(catalogue.checkpoints[-1])),
        "always cold": rule(having()),
    }


class Subsets:
    """A checkpoint may be used when the call needs all that it imported; of these the fastest start is chosen."""

    def __init__(self, catalogue: Catalogue, compiled: CompiledCatalogue) -> None:
        self._compiled = compiled
        always = next(frozenset(one.holds) for one in catalogue.checkpoints if not one.imported)
        self._imported = {one.id: frozenset(one.holds) - always for one in catalogue.checkpoints}
        self._usable = lru_cache(None)(self._find_usable)

    def choose(self, header: CallHeader, candidates: Candidates) -> Chosen | Nobody | Refused:
        """Return the decision for one call."""
        needs = Needs.of(header)
        fit = candidates.fitting(needs)
        if not isinstance(fit, list):
            return fit
        found = [(self._fastest(header.hints, worker), worker) for worker in fit if worker.has_room(needs)]
        if not found:
            return candidates.all_full(needs)
        way, worker = min(found, key=lambda one: (one[0].seconds, one[1].load, one[1].announcement.name))
        return Chosen(worker, way.checkpoint_id, "", way.seconds)

    def _fastest(self, hints: ImportHints, worker: WorkerState) -> Prediction:
        usable = self._usable(hints)
        starts = ways(self._compiled.scores(hints), worker)
        return min((way for way in starts if way.checkpoint_id in usable), key=lambda way: way.seconds)

    def _find_usable(self, hints: ImportHints) -> frozenset[str | None]:
        needed = set(self._compiled.missing(self._compiled.resolve(hints), None))
        return frozenset([None, *(name for name, imported in self._imported.items() if imported <= needed)])


def simulate(one: Rule, week: Week, setting: Setting, costs: Costs = COSTS) -> list[Started]:
    """Return how each call of the week starts by a rule."""
    workers = make_workers(
        setting.workers,
        one.compiled,
        one.sources,
        slots=setting.slots,
        ready_bytes=setting.ready_megabytes * _MB if one.ready else 0,
        created=setting.created,
    )
    return Cluster(workers, costs, one.choose, one.restore_seconds).run(week)


def oracle(one: Rule, week: Week, setting: Setting, costs: Costs = COSTS) -> list[float]:
    """Return the start of each call of the week where nothing could be better."""
    return oracle_starts(
        week,
        one.compiled,
        one.sources,
        one.restore_seconds,
        costs,
        workers=setting.workers,
        ready_bytes=setting.ready_megabytes * _MB,
    )


def imports_at_call(one: Rule, week: Week, found: Started) -> float:
    """Return the seconds of a call's start that are for what its checkpoint lacks."""
    scores = one.compiled.scores(week.kinds[found.call.kind])
    return scores.starts[scores.position[found.checkpoint_id]].import_seconds


@dataclass(frozen=True)
class Amounts:
    """What is simulated."""

    rules: Sequence[str]
    """Of :func:`rules`, with :data:`OURS`."""
    elsewhere: Mapping[str, Mapping[str, Any]]
    """Other settings."""


_RULES = (
    OURS,
    WITH_BIG,
    BIG,
    "latest checkpoint",
    "OpenLambda's subset rule",
    "this router, nothing ahead",
    "always cold",
)
FULL = Amounts(
    _RULES,
    {
        **{f"{megabytes} MiB": {"ready_megabytes": megabytes} for megabytes in (512, 1024, 2048, 4096)},
        "2048 MiB, another seed": {"seed": 2},
        "2048 MiB, no bursts": {"bursts_per_day": 0.0},
    },
)
SHORT = Amounts((OURS,), {})
_OF_ELSEWHERE = (OURS, BIG, WITH_BIG)


@dataclass(frozen=True)
class _Outcome:
    """What became of the calls of a week."""

    starts: list[float]
    """In the order of the calls."""
    imports_seconds: float
    """Mean, at call time."""
    ready_share: float


def _outcome(name: str, setting: Setting) -> _Outcome:
    """Simulate a rule of :func:`rules`, in a process of its own."""
    one, week = rules(read_catalogue())[name], _week(read_corpus(CORPUS), setting)
    started = sorted(simulate(one, week, setting), key=lambda found: found.call)
    return _Outcome(
        [found.start_seconds for found in started],
        fmean(imports_at_call(one, week, found) for found in started),
        Counter(found.met for found in started)["ready"] / len(started),
    )


def run(amounts: Amounts, setting: Setting) -> Section:
    """Simulate."""
    known, week = rules(read_catalogue()), _week(read_corpus(CORPUS), setting)
    section = Section("week", "A synthetic week: mean start by rule", vars(setting) | {"calls": len(week.calls)})
    elsewhere = {name: replace(setting, **changed) for name, changed in amounts.elsewhere.items()}
    wanted = [(name, setting) for name in amounts.rules]
    wanted += [(name, other) for other in elsewhere.values() for name in _OF_ELSEWHERE]
    with ProcessPoolExecutor(mp_context=get_context("spawn")) as pool:
        running = {one: pool.submit(_outcome, *one) for one in dict.fromkeys(wanted)}
        outcomes = {one: future.result() for one, future in running.items()}
    best = oracle(known[OURS], week, setting)
    _add(section, ORACLE, week, best)
    rows: list[list[Cell]] = [[ORACLE, *_figures(best), 1.0, None, None]]
    for name in amounts.rules:
        found = outcomes[name, setting]
        _add(section, name, week, found.starts)
        ratio = fmean(found.starts) / fmean(best)
        rows.append([name, *_figures(found.starts), ratio, 1e3 * found.imports_seconds, 100 * found.ready_share])
        if name == OURS:
            section.checks.append(Check(f"mean start over the week: {OURS} / {ORACLE}", ratio, "at most", 1.1))
            section.ratios[f"week: {OURS} / {ORACLE}"] = Ratio(ratio, "lower", EXACT_MARGIN)
    columns = ["rule", "mean", "p50", "p99", "p99.9", "mean / oracle", "of it imports at call time", "ready %"]
    section.tables.append(Table("Start, in ms", columns, rows))
    if elsewhere:
        means = {one: fmean(found.starts) for one, found in outcomes.items()}
        section.tables.append(_elsewhere(known, elsewhere, means))
    return section


def _elsewhere(
    known: Mapping[str, Rule], elsewhere: Mapping[str, Setting], means: Mapping[tuple[str, Setting], float]
) -> Table:
    rows: list[list[Cell]] = []
    for where, setting in elsewhere.items():
        week = _week(read_corpus(CORPUS), setting)
        best, best_with_big = (fmean(oracle(known[name], week, setting)) for name in (OURS, WITH_BIG))
        ratios = [means[name, setting] / best for name in _OF_ELSEWHERE]
        rows.append([where, 1e3 * best, *ratios, means[WITH_BIG, setting] / best_with_big])
    return Table(
        "Elsewhere, mean start / that of the oracle",
        ["ready sandboxes of each worker", "oracle, ms", *_OF_ELSEWHERE, "the last / an oracle that has it too"],
        rows,
        "The oracle knows the plan's checkpoints alone, but for the last column.",
    )


def _week(corpus: Corpus, setting: Setting) -> Week:
    return make_week(corpus, setting.calls_per_second, setting.bursts_per_day, setting.seed)


def _add(section: Section, name: str, week: Week, starts: list[float]) -> None:
    """Keep the mean start of each quarter of a day."""
    parts: dict[int, list[float]] = {}
    for call, seconds in zip(week.calls, starts, strict=True):
        parts.setdefault(int(call.at_seconds / DAY_SECONDS * PARTS_OF_DAY), []).append(seconds)
    section.add({"rule": name}, "s", [fmean(parts[part]) for part in sorted(parts)])


def _figures(starts: list[float]) -> list[float]:
    return [1e3 * value for value in (fmean(starts), median(starts), percentile(starts, 99), percentile(starts, 99.9))]
