"""Run two functions remotely, each once cold and once from a checkpoint, and show where the time went.

Start a stack first (``readie up -d``), or let ``make demo`` do everything.
"""

from pathlib import Path

from rich.console import Console
from rich.table import Table

from readie import Call, RemoteFunction, remote

# 4,000 packages of Debian 12: section, dependencies, sizes.
PACKAGES_CSV = Path(__file__).parent / "data" / "debian_packages.csv"


@remote
def heavy_sections(csv_text: str, count: int) -> dict[str, float]:
    """Return the sections with the largest median package, in MiB."""
    import io

    import pandas as pd

    packages = pd.read_csv(io.StringIO(csv_text))
    medians = packages.groupby("section")["installed_kib"].median() / 1024
    return medians.nlargest(count).round(2).to_dict()


@remote
def digit_accuracy(trees: int) -> float:
    """Train a forest on 1,797 handwritten digits; return its accuracy on digits it has not seen."""
    from sklearn.datasets import load_digits
    from sklearn.ensemble import RandomForestClassifier
    from sklearn.model_selection import train_test_split

    images, labels = load_digits(return_X_y=True)
    seen, unseen, seen_labels, unseen_labels = train_test_split(images, labels, random_state=0)
    forest = RandomForestClassifier(trees, random_state=0).fit(seen, seen_labels)
    return float(forest.score(unseen, unseen_labels))


def milliseconds(seconds: float) -> str:
    """Return a duration as the table shows it."""
    return f"{1000 * seconds:,.0f}"


def compare(function: RemoteFunction[..., object], *arguments: object) -> tuple[object, list[Call[object]]]:
    """Call a function cold, then restored; return its value and both calls."""
    cold = function.options(disable_optimized_execution=True).spawn(*arguments)
    cold_value = cold.result(timeout=120)
    restored = function.spawn(*arguments)
    value = restored.result(timeout=120)
    assert value == cold_value, f"the two starts disagree: {cold_value} and {value}"
    return value, [cold, restored]


def main() -> None:
    """Run both functions both ways and print the table."""
    console = Console()
    runs = {
        heavy_sections: (PACKAGES_CSV.read_text(), 3),
        digit_accuracy: (10,),
    }
    table = Table(title="Times in milliseconds", title_justify="left", box=None, padding=(0, 1, 0, 0))
    for heading in ("function", "start", "checkpoint"):
        table.add_column(heading)
    groups = {
        "wait": ("serialize", "submit", "queue", "route", "deliver"),
        "start": ("sandbox", "start", "connect"),
        "load": ("load",),
        "run": ("execute",),
        "back": ("dump", "store", "return"),
    }
    for heading in (*groups, "total"):
        table.add_column(heading, justify="right")
    table.add_column("faster", justify="right")
    for function, arguments in runs.items():
        value, calls = compare(function, *arguments)
        console.print(f"{function.__name__} = {value}")
        cold_seconds = calls[0].report().total_seconds
        for call in calls:
            report = call.report()
            grouped = [sum(report.phases.get(phase, 0.0) for phase in phases) for phases in groups.values()]
            table.add_row(
                function.__name__,
                report.start,
                report.checkpoint_id or "-",
                *(milliseconds(seconds) for seconds in (*grouped, report.total_seconds)),
                f"{cold_seconds / report.total_seconds:.1f}x",
            )
    console.print(table)


if __name__ == "__main__":
    main()
