"""Makes docs/reference/metrics.md from the catalogue of `ft_supervisor.coordinator.metric_families`."""

from __future__ import annotations

from ft_docs.text import code, page, table
from ft_supervisor.coordinator.metric_families import BUCKETS, FAMILIES, catalogue

INTRO = """\
The metrics that a coordinator serves to Prometheus at `http://NODE:PORT/metrics`, if `metrics.listen` is not off. Every
node that keeps a coordinator answers; `ft_supervisor_in_charge` is 1 on the one that decides. Each process counts from
its own start, and a takeover begins at zero in another process: sum over them, as in
`sum by (run_id) (increase(ft_supervisor_restarts_total[1d]))`. Every series has the label `run_id` besides its own."""


def render() -> str:
    """Return the whole page."""
    rows = [
        (code(each.name), each.help, each.type, " ".join(code(label) for label in each.labels if label != "run_id"))
        for each in catalogue()
    ]
    values = [
        (code(family.name), code(family.labels[0]), ", ".join(map(code, family.values)))
        for family in FAMILIES
        if family.values
    ]
    bounds = ", ".join(f"{bound:g}" for bound in BUCKETS)
    return page(
        "Metrics",
        INTRO,
        table(("metric", "meaning", "type", "labels"), rows),
        "## Values of labels",
        table(("metric", "label", "values"), values),
        f"Histograms have these upper bounds, in seconds: {bounds}.",
    )
