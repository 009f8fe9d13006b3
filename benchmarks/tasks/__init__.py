"""The one task of the benchmarks, as each peer has its tasks. Workers import these modules, clients call ``make``."""

import os

URL = os.environ.get("READIE_BENCHMARK_REDIS_URL", "redis://127.0.0.1:6379/0")
"""Of the worker; clients say it."""
