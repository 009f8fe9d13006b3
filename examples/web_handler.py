"""A web server whose handlers wait for sandboxes without blocking each other.

    readie up -d
    python examples/web_handler.py [PORT]
    curl 'http://127.0.0.1:8888/describe?values=1,2,3,10'

Tornado is here because Flower brings it along; ``await f.aio(...)`` is the same in any asynchronous framework. A client
that goes away cancels its call.
"""

import asyncio
import sys
from typing import Any

from tornado.web import Application, RequestHandler

import readie
from readie import remote


@remote(timeout=10, expires=30)
def describe(values: list[float]) -> dict[str, float]:
    """Return count, mean, spread and quartiles."""
    import pandas as pd

    return {str(name): float(value) for name, value in pd.Series(values).describe().items()}


class Describe(RequestHandler):
    """Answers ``/describe?values=1,2,3``."""

    task: "asyncio.Task[dict[str, float]] | None" = None

    async def get(self) -> None:
        """Call, wait, answer."""
        try:
            values = [float(text) for text in self.get_argument("values").split(",")]
        except ValueError:
            self.set_status(400)
            self.finish({"error": "values are numbers with commas between them"})
            return
        self.task = asyncio.ensure_future(describe.aio(values))
        try:
            self.finish(await self.task)
        except (readie.CallTimeoutError, readie.CallExpiredError, readie.ClusterUnavailableError) as error:
            self.set_status(503)
            self.finish({"error": str(error)})

    def on_connection_close(self) -> None:
        """Nobody waits any more."""
        if self.task is not None:
            self.task.cancel()

    def data_received(self, chunk: bytes) -> Any:
        """Nothing is uploaded here."""


async def main(port: int) -> None:
    """Serve until interrupted."""
    Application([("/describe", Describe)]).listen(port, address="127.0.0.1")
    print(f"listening on http://127.0.0.1:{port}", flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]) if len(sys.argv) > 1 else 8888))
