"""A report on a table, computed in a sandbox with pandas: this program needs no pandas of its own.

    readie up -d
    python examples/pandas_report.py [FILE.csv] > report.md

The table travels to the sandbox as bytes, the finished report comes back as text.
"""

import sys
from pathlib import Path

from readie import remote

# 4,000 packages of Debian 12: section, dependencies, sizes.
PACKAGES_CSV = Path(__file__).parent / "data" / "debian_packages.csv"


@remote(timeout=60, memory="1Gi")
def report(csv: bytes, by: str, value: str) -> str:
    """Return a Markdown report on one column of a table.

    Args:
        csv: the table, with a header line.
        by: the column whose values make the groups.
        value: the column of numbers to sum up.
    """
    import io

    import pandas as pd

    table = pd.read_csv(io.BytesIO(csv))
    groups = table.groupby(by)[value].agg(["count", "median", "max", "sum"]).sort_values("sum", ascending=False)
    share = 100 * groups["sum"] / groups["sum"].sum()
    lines = [
        f"# {value} by {by}",
        "",
        f"{len(table):,} rows, {len(groups)} groups. The first three hold {share.head(3).sum():.0f} %.",
        "",
        f"| {by} | rows | median | largest | share |",
        "| --- | ---: | ---: | ---: | ---: |",
    ]
    lines += [
        f"| {name} | {row['count']:,.0f} | {row['median']:,.0f} | {row['max']:,.0f} | {share[name]:.1f} % |"
        for name, row in groups.head(10).iterrows()
    ]
    return "\n".join(lines)


def main() -> None:
    """Report on the file named on the command line, else on Debian's packages."""
    path = Path(sys.argv[1]) if len(sys.argv) > 1 else PACKAGES_CSV
    call = report.spawn(path.read_bytes(), by="section", value="installed_kib")
    print(call.result())
    run = call.report()
    print(
        f"{1000 * run.total_seconds:.0f} ms on {run.worker}, {run.start} {run.checkpoint_id or ''}",
        file=sys.stderr,
    )


if __name__ == "__main__":
    main()
