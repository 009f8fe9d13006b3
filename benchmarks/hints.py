"""How long a scan takes: for an ordinary function, and for one with helpers, per way the function was defined.

python benchmarks/hints.py [repetitions]
"""

import linecache
import statistics
import sys
import textwrap
import time
from collections.abc import Callable
from typing import Any

from readie.hints import scan

PROGRAM = textwrap.dedent('''
    import json
    import logging
    import redis

    log = logging.getLogger(__name__)
    CLIENT = redis.Redis

    def load(path):
        with open(path) as lines:
            return [json.loads(line) for line in lines]

    class Cleaner:
        """Drops rows."""

        def __init__(self, least):
            self.least = least

        def clean(self, rows):
            import numpy as np
            return [row for row in rows if np.isfinite(row["value"]) and row["value"] > self.least]

    def ordinary(rows, by="shop", least=3):
        """Mean per group.

        An ordinary function: some thirty lines, two imports, a few calls.
        """
        import pandas as pd
        from sklearn.linear_model import LinearRegression

        frame = pd.DataFrame(rows)
        if frame.empty:
            raise ValueError("no rows")
        frame["date"] = pd.to_datetime(frame["date"])
        frame = frame.dropna().sort_values("date")
        groups = {}
        for name, group in frame.groupby(by):
            if len(group) < least:
                continue
            model = LinearRegression()
            model.fit(group[["x"]], group["y"])
            groups[name] = {
                "mean": float(group["y"].mean()),
                "slope": float(model.coef_[0]),
                "days": (group["date"].max() - group["date"].min()).days,
                "top": [row for row in group["y"].nlargest(5)],
            }
        return dict(sorted(groups.items(), key=lambda item: item[1]["mean"]))

    def with_helpers(path):
        rows = Cleaner(0).clean(load(path))
        log.info("%d rows", len(rows))
        CLIENT().ping()
        return ordinary(rows)
''')


def define(name: str, *, has_source: bool) -> Callable[..., object]:
    filename = "<benchmark>"
    linecache.cache.pop(filename, None)
    if has_source:
        linecache.cache[filename] = (len(PROGRAM), None, PROGRAM.splitlines(keepends=True), filename)
    namespace: dict[str, Any] = {"__name__": "__main__"}
    exec(compile(PROGRAM, filename, "exec"), namespace)
    function: Callable[..., object] = namespace[name]
    return function


def main(repetitions: int = 300) -> None:
    print(f"{'function':14}{'from':10}{'first ms':>10}{'median ms':>11}{'p99 ms':>9}  names")
    for name in ("ordinary", "with_helpers"):
        for has_source in (True, False):
            function = define(name, has_source=has_source)
            taken_ms = []
            for _ in range(repetitions):
                start = time.perf_counter()
                found = scan(function)
                taken_ms.append((time.perf_counter() - start) * 1e3)
            p99 = statistics.quantiles(taken_ms, n=100)[-1]
            origin = "source" if has_source else "bytecode"
            median = statistics.median(taken_ms)
            print(f"{name:14}{origin:10}{taken_ms[0]:10.2f}{median:11.2f}{p99:9.2f}  {len(found.imports)}")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:2]))
