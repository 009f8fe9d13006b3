"""What ``stream_logs=True`` writes to the terminal."""

import pytest

from readie.printing import Prefixed, Printer


class Screen:
    """A terminal, as far as progress bars need one."""

    def __init__(self, text: str) -> None:
        self.lines = [""]
        column = 0
        for character in text:
            if character == "\n":
                self.lines.append("")
                column = 0
            elif character == "\r":
                column = 0
            else:
                line = self.lines[-1]
                self.lines[-1] = line[:column] + character + line[column + 1 :]
                column += 1


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> tuple[Prefixed, Prefixed]:
    monkeypatch.setattr("readie.printing._printer", Printer())
    return Prefixed("[a] "), Prefixed("[b] ")


def shown(capsys: pytest.CaptureFixture[str]) -> list[str]:
    captured = capsys.readouterr()
    assert captured.out == "", "standard output is the program's own"
    return Screen(captured.err).lines


def test_each_line_begins_with_its_calls_prefix(
    calls: tuple[Prefixed, Prefixed], capsys: pytest.CaptureFixture[str]
) -> None:
    first, second = calls
    first.write(b"one\ntwo\n")
    second.write(b"three\n\n")
    first.write(b"fo")
    first.write(b"ur\r\n")
    first.finish()

    assert shown(capsys) == ["[a] one", "[a] two", "[b] three", "[b] ", "[a] four", ""]


def test_calls_do_not_write_into_each_others_lines(
    calls: tuple[Prefixed, Prefixed], capsys: pytest.CaptureFixture[str]
) -> None:
    first, second = calls
    first.write(b"begun")
    second.write(b"whole\n")
    first.write(b" and ended\n")
    second.write(b"no end")
    second.finish()

    assert shown(capsys) == ["[a] begun", "[b] whole", "[a]  and ended", "[b] no end", ""]


def test_a_progress_bar_stays_on_one_line(calls: tuple[Prefixed, Prefixed], capsys: pytest.CaptureFixture[str]) -> None:
    from tqdm import tqdm

    class ToCall:
        def write(self, text: str) -> None:
            calls[0].write(text.encode())

        def flush(self) -> None:
            pass

    for _ in tqdm(range(30), file=ToCall(), mininterval=0, ncols=60):
        pass
    calls[0].write(b"after\n")
    bar, after, end = shown(capsys)

    assert bar.startswith("[a] 100%|")
    assert bar.count("[a]") == 1
    assert "30/30" in bar
    assert (after, end) == ("[a] after", "")


def test_characters_that_are_cut_in_two_arrive_whole(
    calls: tuple[Prefixed, Prefixed], capsys: pytest.CaptureFixture[str]
) -> None:
    for byte in "zähe Äpfel\n".encode():
        calls[0].write(bytes([byte]))

    assert shown(capsys) == ["[a] zähe Äpfel", ""]
