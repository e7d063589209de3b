"""Renders the metrics in Prometheus' text format, version 0.0.4, which every Prometheus reads.

https://prometheus.io/docs/instrumenting/exposition_formats/ describes the format.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from ft_supervisor.coordinator.metric_families import BUCKETS, FAMILIES, RUN_ID, Buckets, Family, MetricType, Sample

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_IN_HELP = str.maketrans({"\\": r"\\", "\n": r"\n"})
_IN_LABEL = str.maketrans({"\\": r"\\", "\n": r"\n", '"': r"\""})
_BOUNDS = (*map(str, BUCKETS), "+Inf")


def render(run_id: str, samples: Iterable[Sample]) -> bytes:
    """Return the families in their order, without those that have no sample."""
    found: dict[Family, list[Sample]] = {}
    for sample in samples:
        found.setdefault(sample.family, []).append(sample)
    lines = (line for family in FAMILIES if family in found for line in _family(family, run_id, found[family]))
    return "".join(f"{line}\n" for line in lines).encode()


def _family(family: Family, run_id: str, samples: Iterable[Sample]) -> Iterator[str]:
    yield f"# HELP {family.name} {family.help.translate(_IN_HELP)}"
    yield f"# TYPE {family.name} {'gauge' if family.kind is MetricType.INFO else family.kind}"
    for sample in samples:
        labels = dict(zip((RUN_ID, *family.labels), (run_id, *sample.labels), strict=True))
        if isinstance(sample.value, Buckets):
            for bound, count in zip(_BOUNDS, sample.value.counts, strict=True):
                yield _line(f"{family.name}_bucket", {**labels, "le": bound}, count)
            yield _line(f"{family.name}_count", labels, sample.value.counts[-1])
            yield _line(f"{family.name}_sum", labels, sample.value.total)
        else:
            yield _line(family.name, labels, sample.value)


def _line(name: str, labels: Mapping[str, str], value: float) -> str:
    """Return `name{a="1",b="2"} 3.0`. Prometheus' parser reads Python's inf and nan, too (Go's ParseFloat)."""
    shown = ",".join(f'{label}="{text.translate(_IN_LABEL)}"' for label, text in sorted(labels.items()))
    return f"{name}{{{shown}}} {float(value)}"
