"""A grid search with scikit-learn, one sandbox for each candidate, with a progress bar.

    readie up -d
    python examples/grid_search.py

``map`` keeps a window of candidates under way, however many there are. Ctrl-C cancels what is left.
"""

from dataclasses import dataclass
from itertools import product

from readie import Retries, WorkerLostError, remote


@dataclass(frozen=True)
class Candidate:
    """One point of the grid."""

    c: float
    gamma: float


@dataclass(frozen=True)
class Score:
    """What a candidate reached."""

    candidate: Candidate
    accuracy: float
    """Mean over the folds, 0 to 1."""


@remote(timeout=120, retries=Retries(2, after=(WorkerLostError,)))
def score(candidate: Candidate) -> Score:
    """Cross-validate a support vector machine on handwritten digits."""
    from sklearn.datasets import load_digits
    from sklearn.model_selection import cross_val_score
    from sklearn.svm import SVC

    images, labels = load_digits(return_X_y=True)
    accuracies = cross_val_score(SVC(C=candidate.c, gamma=candidate.gamma), images[:600], labels[:600], cv=3)
    return Score(candidate, float(accuracies.mean()))


def main() -> None:
    """Search the grid and print the best three."""
    grid = [Candidate(c, gamma) for c, gamma in product([0.1, 1.0, 10.0], [1e-4, 1e-3, 1e-2])]
    scores = list(score.map(grid, ordered=False, window=16, progress=True))
    for best in sorted(scores, key=lambda found: found.accuracy, reverse=True)[:3]:
        print(f"C={best.candidate.c:<5g} gamma={best.candidate.gamma:<7g} accuracy {best.accuracy:.3f}")


if __name__ == "__main__":
    main()
