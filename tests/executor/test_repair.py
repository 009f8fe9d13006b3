import random
import tempfile
import uuid
from multiprocessing import process

import pytest

from workers.executor.repair import Repair


@pytest.fixture
def repaired_after() -> Repair:
    """A survey to apply later; what the repair changes in this test process does no harm to it."""
    return Repair.survey()


def test_a_generator_made_before_the_survey_draws_new_numbers() -> None:
    class Subclass(random.Random):
        def seed(self, *_arguments: object) -> None:
            raise AssertionError("foreign code is not run")

        def __init__(self) -> None:
            pass

    plain, subclass, system = random.Random(7), Subclass(), random.SystemRandom()
    random.Random.seed(subclass, 7)
    plain.gauss(0, 1)
    state = subclass.getstate()
    Repair.survey().apply()

    kept = random.Random(7)
    kept.gauss(0, 1)
    assert plain.gauss(0, 1) != kept.gauss(0, 1)
    assert subclass.getstate() != state
    assert system.random() != system.random()


def test_a_generator_made_after_the_survey_keeps_its_seed(repaired_after: Repair) -> None:
    late = random.Random(7)
    repaired_after.apply()

    assert late.random() == random.Random(7).random()


def test_the_global_generator_is_reseeded(repaired_after: Repair) -> None:
    random.seed(7)
    repaired_after.apply()

    assert random.random() != random.Random(7).random()


def test_names_keys_and_addresses_are_made_anew(repaired_after: Repair) -> None:
    names, key, node = tempfile._get_candidate_names(), process.current_process().authkey, uuid.getnode()  # type: ignore[attr-defined]
    repaired_after.apply()

    assert tempfile._get_candidate_names() is not names  # type: ignore[attr-defined]
    assert process.current_process().authkey != key
    assert uuid.getnode() != node
    assert uuid.getnode() >> 40 & 1, "a random node must not look like a hardware address"
    assert uuid.uuid1().node == uuid.getnode()
