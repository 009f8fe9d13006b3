"""The dashboard, the alerts and the scraping of compose's Prometheus name what there is."""

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from tests.conftest import ROOT
from tests.monitoring.conftest import Observed

DEPLOY = ROOT / "deploy"
DASHBOARD = json.loads((DEPLOY / "grafana" / "dashboards" / "readie.json").read_text())


def read(*path: str) -> Any:
    return yaml.safe_load(ROOT.joinpath(*path).read_text())


def expressions() -> Iterator[str]:
    """Yield every PromQL expression."""
    for panel in DASHBOARD["panels"]:
        yield from (target["expr"] for target in panel.get("targets", ()))
    for variable in DASHBOARD["templating"]["list"]:
        yield variable["definition"]
    for group in read("deploy", "prometheus", "alerts.yml")["groups"]:
        yield from (rule["expr"] for rule in group["rules"])


def labels_of(name: str) -> set[str]:
    """Return the labels that ``docs/metrics.md`` gives a metric; a test holds it against the code."""
    base = re.sub(r"_(bucket|sum|count)$", "", name)
    text = (ROOT / "docs" / "metrics.md").read_text()
    row = re.search(rf"^\| `({name}|{base})` \| \w+ \| (.*?) \|", text, re.MULTILINE)
    assert row is not None, name
    return set(re.findall(r"`(\w+)`", row[2])) | {"le"}


@pytest.mark.sandbox
def test_every_expression_names_metrics_that_there_are(observed: Observed) -> None:
    there_are: set[str] = set()
    for scraped in (observed.router(), observed.worker()):
        there_are |= scraped.names()
    named = {name for expression in expressions() for name in re.findall(r"readie_\w+", expression)}
    assert len(named) > 20
    assert named - there_are == set()


def test_every_expression_asks_for_labels_that_its_metrics_have() -> None:
    for expression in expressions():
        for name, matchers in re.findall(r"(readie_\w+)\{(.*?)\}", expression):
            assert set(re.findall(r"(\w+)(?:=~?|!=)", matchers)) <= labels_of(name), expression
        for grouping in re.findall(r"by \((.*?)\)", expression):
            metrics = [labels_of(name) for name in re.findall(r"readie_\w+", expression)]
            assert any(set(grouping.split(", ")) <= labels for labels in metrics), expression


def test_prometheus_scrapes_the_services_that_have_metrics() -> None:
    services = read("compose.yaml")["services"]
    listening = {
        name: int(service["environment"]["READIE_METRICS_ADDRESS"].rpartition(":")[2])
        for name, service in services.items()
        if "READIE_METRICS_ADDRESS" in service.get("environment", {})
    }
    jobs = read("deploy", "prometheus", "prometheus.yml")["scrape_configs"]
    asked = {name: found["port"] for job in jobs for found in job["dns_sd_configs"] for name in found["names"]}
    assert asked == listening
    assert set(listening) == {"router", "worker"}
    for name in listening:
        assert "127.0.0.1/9464" in services[name]["healthcheck"]["test"][-1]


def test_grafana_is_given_the_source_and_the_dashboard() -> None:
    services = read("compose.yaml")["services"]
    provisioning = DEPLOY / "grafana" / "provisioning"
    (source,) = yaml.safe_load((provisioning / "datasources" / "prometheus.yml").read_text())["datasources"]
    assert source["url"] == "http://prometheus:9090"
    assert services["prometheus"]["ports"] == ["127.0.0.1:${PROMETHEUS_PORT:-9090}:9090"]
    uids = {panel["datasource"]["uid"] for panel in DASHBOARD["panels"] if panel["type"] != "row"}
    assert uids == {source["uid"]}
    (provider,) = yaml.safe_load((provisioning / "dashboards" / "readie.yml").read_text())["providers"]
    mounts = [mount.split(":") for mount in services["grafana"]["volumes"]]
    assert ["./deploy/grafana/dashboards", provider["options"]["path"], "ro"] in mounts
    assert {"prometheus", "grafana"} <= set(services["prometheus"]["profiles"]), "the profile grafana needs both"
