"""Reading what a process tells on its endpoint."""

import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass

from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample


@dataclass(frozen=True)
class Family:
    """One metric. A counter's name ends in ``_total``."""

    type: str
    help: str
    samples: list[Sample]


@dataclass(frozen=True)
class Scraped:
    """What one process told at one moment."""

    families: dict[str, Family]

    def value(self, name: str, **labels: str) -> float:
        """Return the sum of the samples of this name that have these labels."""
        return sum(
            sample.value
            for sample in self._samples()
            if sample.name == name and labels.items() <= sample.labels.items()
        )

    def names(self) -> set[str]:
        """Return what a PromQL expression can name."""
        histograms = {"_bucket", "_sum", "_count"}
        plain = {name for name, family in self.families.items() if family.type != "histogram"}
        return plain | {
            name + part for name, family in self.families.items() if family.type == "histogram" for part in histograms
        }

    def _samples(self) -> Iterator[Sample]:
        for family in self.families.values():
            yield from family.samples


def ask(port: int, path: str) -> tuple[int, str]:
    """Return status and body of an answer; status 0 when there is none."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=10) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()
    except OSError:
        return 0, ""


def scrape(port: int) -> Scraped:
    """Return all metrics of the process at a loopback port."""
    status, text = ask(port, "/metrics")
    assert status == 200
    families = {}
    for family in text_string_to_metric_families(text):
        # The parser takes the ending off a counter's name.
        name = f"{family.name}_total" if family.type == "counter" else family.name
        if name.startswith("readie_"):
            families[name] = Family(family.type, family.documentation, family.samples)
    return Scraped(families)
