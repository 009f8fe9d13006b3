"""A headless Chromium, driven over its debugging pipe."""

from __future__ import annotations

import base64
import itertools
import json
import os
import subprocess
from pathlib import Path
from typing import Any

from tests.debian import find_program
from tests.local_stack import eventually


class Browser:
    """One page of a browser of its own. Close it."""

    def __init__(self, folder: Path) -> None:
        """Start it with its profile in ``folder``."""
        read_commands, self._commands = os.pipe()
        self._answers, write_answers = os.pipe()
        # Chromium reads commands from descriptor 3 and answers on 4; a shell puts them there.
        script = f'exec "$@" 3<&{read_commands} 4>&{write_answers} {read_commands}<&- {write_answers}>&-'
        options = (
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--no-first-run",
            "--window-size=1200,900",
            f"--user-data-dir={folder}",
            "--remote-debugging-pipe",
        )
        with (folder / "chromium.log").open("wb") as log:
            self._process = subprocess.Popen(
                ["bash", "-c", script, "chromium", find_program("chromium"), *options],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                pass_fds=(read_commands, write_answers),
            )
        os.close(read_commands)
        os.close(write_answers)
        self._ids = itertools.count(1)
        self._received = b""
        target = self._ask("Target.createTarget", url="about:blank")
        self._session = self._ask("Target.attachToTarget", targetId=target["targetId"], flatten=True)["sessionId"]

    def log_in(self, user: str, password: str) -> None:
        """Send a password with every request from now on."""
        token = base64.b64encode(f"{user}:{password}".encode()).decode()
        self._tell("Network.enable")
        self._tell("Network.setExtraHTTPHeaders", headers={"Authorization": f"Basic {token}"})

    def open(self, url: str) -> None:
        """Go to a page, and return when its scripts have run."""
        answer = self._tell("Page.navigate", url=url)
        assert "errorText" not in answer, answer
        eventually(lambda: self.evaluate("document.readyState") == "complete", f"{url} is loaded", seconds=20)

    def evaluate(self, expression: str) -> Any:
        """Return the value of a JavaScript expression in the page; ``None`` when it fails."""
        answer = self._tell("Runtime.evaluate", expression=expression, returnByValue=True)
        return answer["result"].get("value") if "exceptionDetails" not in answer else None

    def text(self, selector: str) -> str:
        """Return the visible text of the first element that fits, once there is some."""
        expression = f"document.querySelector({json.dumps(selector)}).innerText.trim()"
        return str(eventually(lambda: self.evaluate(expression), f"{selector} is on the page", seconds=20))

    def click(self, selector: str) -> None:
        """Click the first element that fits, once it is there."""
        expression = f"document.querySelector({json.dumps(selector)}).click() === undefined"
        eventually(lambda: self.evaluate(expression), f"{selector} is on the page", seconds=20)

    def screenshot(self, file: Path) -> None:
        """Write a PNG of what is seen."""
        file.write_bytes(base64.b64decode(self._tell("Page.captureScreenshot")["data"]))

    def close(self) -> None:
        """End it."""
        os.close(self._commands)
        self._process.wait(timeout=20)
        os.close(self._answers)

    def _tell(self, method: str, **parameters: Any) -> Any:
        return self._ask(method, session=self._session, **parameters)

    def _ask(self, method: str, *, session: str | None = None, **parameters: Any) -> Any:
        message: dict[str, Any] = {"id": next(self._ids), "method": method, "params": parameters}
        if session is not None:
            message["sessionId"] = session
        os.write(self._commands, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._receive()
            if answer.get("id") == message["id"]:
                assert "error" not in answer, answer
                return answer["result"]

    def _receive(self) -> dict[str, Any]:
        while b"\0" not in self._received:
            chunk = os.read(self._answers, 1 << 16)
            assert chunk, "Chromium has ended"
            self._received += chunk
        item, _, self._received = self._received.partition(b"\0")
        answer: dict[str, Any] = json.loads(item)
        return answer
