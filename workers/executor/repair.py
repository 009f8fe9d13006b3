"""Making clones of one checkpoint different where they must be.

A restored process carries every generator of random numbers in the state it was captured in, so all clones would draw
the same numbers, file names and TLS keys. ``Repair.survey()`` finds the generators that live in the process before
the snapshot; ``Repair.apply()`` gives each new entropy from the kernel after the restore, before any user code runs.

Clones still share what cannot be changed in a running process: the seed of ``hash(str)``, the layout of ``id()``, the
pid and the host name. ``os.urandom``, ``secrets`` and ``uuid.uuid4`` ask the kernel and need nothing.
"""

from __future__ import annotations

import gc
import os
import random
import sys
from dataclasses import dataclass
from types import ModuleType
from typing import Any, Final

_NVIDIA: Final = "/dev/nvidiactl"


@dataclass(frozen=True)
class Repair:
    """The generators that were alive when the snapshot was taken.

    They are looked for before the snapshot, because walking all objects takes longer than all the rest, and every
    restore would pay for it.
    """

    randoms: list[random.Random]
    numpy_seed_sequences: list[Any]
    numpy_bit_generators: list[Any]
    numpy_random_states: list[Any]
    torch_generators: list[Any]

    @classmethod
    def survey(cls) -> Repair:
        """Find all live generators of the standard library, numpy and torch."""
        numpy_random = _loaded("numpy.random")
        torch = _loaded("torch")
        seed_sequence, bit_generator, random_state = (
            (numpy_random.SeedSequence, numpy_random.BitGenerator, numpy_random.RandomState)
            if numpy_random
            else (_Absent, _Absent, _Absent)
        )
        torch_generator = torch.Generator if torch else _Absent
        found = _live((random.Random, seed_sequence, bit_generator, random_state, torch_generator))
        return cls(
            randoms=_of_kind(found, random.Random),
            numpy_seed_sequences=_of_kind(found, seed_sequence),
            numpy_bit_generators=_of_kind(found, bit_generator),
            numpy_random_states=_of_kind(found, random_state),
            torch_generators=_of_kind(found, torch_generator),
        )

    def apply(self) -> None:
        """Give every generator, name and key that clones share new entropy."""
        self._reseed_random()
        self._reseed_numpy()
        self._reseed_torch()
        _reseed_openssl()
        _reset_uuid()
        _reset_tempfile()
        _reset_multiprocessing()

    def _reseed_random(self) -> None:
        for generator in self.randoms:
            # The base class's method: a subclass's own seed() is foreign code.
            random.Random.seed(generator, int.from_bytes(os.urandom(32)))

    def _reseed_numpy(self) -> None:
        numpy_random = _loaded("numpy.random")
        if numpy_random is None:
            return
        for sequence in self.numpy_seed_sequences:
            # spawn() derives children from the entropy, which only __init__ can set.
            numpy_random.SeedSequence.__init__(sequence)
        for generator in self.numpy_bit_generators:
            generator.state = type(generator)(numpy_random.SeedSequence()).state
        for state in self.numpy_random_states:
            # Half of a pair of normal numbers may be kept from before the snapshot.
            kept = state.get_state(legacy=False)
            state.set_state({**kept, "has_gauss": 0, "gauss": 0.0})

    def _reseed_torch(self) -> None:
        torch = _loaded("torch")
        if torch is None:
            return
        # The default one is among them.
        for generator in self.torch_generators:
            generator.manual_seed(_torch_seed())
        if os.path.exists(_NVIDIA):  # noqa: PTH110 - as little Python as possible
            # Those of GPUs are made when CUDA is used, and begin with this. torch.manual_seed() takes 4 ms without any.
            torch.cuda.manual_seed_all(_torch_seed())


def _reseed_openssl() -> None:
    entropy = os.urandom(32)
    if ssl := _loaded("ssl"):
        ssl.RAND_add(entropy, float(len(entropy)))
    # The wheels of cryptography carry an OpenSSL of their own.
    if rust := _loaded("cryptography.hazmat.bindings._rust"):
        rust._openssl.lib.RAND_add(entropy, len(entropy), float(len(entropy)))  # noqa: SLF001


def _reset_uuid() -> None:
    if uuid := _loaded("uuid"):
        # libuuid keeps node and clock sequence where they cannot be reset, so uuid1() must not use it.
        uuid._generate_time_safe = None  # type: ignore[attr-defined]  # noqa: SLF001
        uuid._node = int.from_bytes(os.urandom(6)) | 1 << 40  # type: ignore[attr-defined]  # noqa: SLF001 - multicast: not a hardware address
        uuid._last_timestamp = None  # type: ignore[attr-defined]  # noqa: SLF001


def _reset_tempfile() -> None:
    if tempfile := _loaded("tempfile"):
        tempfile._name_sequence = None  # type: ignore[attr-defined]  # noqa: SLF001


def _reset_multiprocessing() -> None:
    if process := _loaded("multiprocessing.process"):
        process.current_process().authkey = os.urandom(32)


def _torch_seed() -> int:
    return int.from_bytes(os.urandom(8)) >> 1


class _Absent:
    """Stands for a class whose package is not loaded; there is no object of it."""


def _live(kinds: tuple[type[Any], ...]) -> list[Any]:
    """Return every object of ``kinds`` that the garbage collector tracks, or that one which it tracks refers to.

    Types are looked at instead of ``isinstance``, which would wake lazy proxy objects through ``__class__``.
    """
    wanted: dict[type[Any], bool] = {}
    found: dict[int, Any] = {}
    for tracked in gc.get_objects():
        for item in (tracked, *gc.get_referents(tracked)):
            kind = type(item)
            if kind not in wanted:
                wanted[kind] = issubclass(kind, kinds)
            if wanted[kind]:
                found[id(item)] = item
    return list(found.values())


def _of_kind(items: list[Any], kind: type[Any]) -> list[Any]:
    return [item for item in items if issubclass(type(item), kind)]


def _loaded(name: str) -> ModuleType | None:
    return sys.modules.get(name)
