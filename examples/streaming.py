"""Values and progress of a function while it runs: a Monte Carlo estimate that stops when it is good enough.

Run it with a stack on this machine (`readie up -d`): python examples/streaming.py
"""

import asyncio
import math
from collections.abc import Iterator

from readie import remote


@remote(stream_logs=True)
def estimate_pi(batch: int) -> Iterator[tuple[int, float, float]]:
    """Yield (points, estimate of pi, its standard error) after each batch of random points, for as long as asked."""
    import numpy as np

    generator = np.random.default_rng()
    points = hits = 0
    while True:
        x, y = generator.random((2, batch))
        points += batch
        hits += int(np.count_nonzero(x * x + y * y < 1))
        share = hits / points
        error = 4 * math.sqrt(share * (1 - share) / points)
        print(f"{points:>10} points, error {error:.6f}")
        yield points, 4 * share, error


def until(wanted_error: float) -> float:
    """Read estimates until one is good enough; leaving the loop stops the function."""
    for points, pi, error in estimate_pi(200_000):
        if error < wanted_error:
            print(f"pi is {pi:.5f} +- {error:.5f}, from {points} points")
            return pi
    raise AssertionError("the stream has no end of its own")


async def race(readers: int, batches: int) -> float:
    """Read several streams side by side in one event loop and return the mean of their estimates."""

    async def last_estimate() -> float:
        stream = estimate_pi.aio(100_000)
        for _ in range(batches - 1):
            await anext(stream)
        _, pi, _ = await anext(stream)
        await stream.aclose()
        return pi

    return sum(await asyncio.gather(*(last_estimate() for _ in range(readers)))) / readers


if __name__ == "__main__":
    until(0.001)
    print(f"the mean of three is {asyncio.run(race(readers=3, batches=5)):.4f}")
