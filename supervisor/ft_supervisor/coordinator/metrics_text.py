"""The metrics as Prometheus reads them: what prometheus_client makes of our samples."""

from __future__ import annotations

from collections.abc import Iterable

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest
from prometheus_client.registry import CollectorRegistry

from ft_supervisor.observe.metric_families import BUCKETS, FAMILIES, RUN_ID, Buckets, Family, Kind, Sample

CONTENT_TYPE = CONTENT_TYPE_PLAIN_0_0_4


class _Collector:
    """What prometheus_client asks for its text."""

    def __init__(self, run_id: str, samples: Iterable[Sample]) -> None:
        self._run_id = run_id
        self._samples: dict[Family, list[Sample]] = {}
        for sample in samples:
            self._samples.setdefault(sample.family, []).append(sample)

    def collect(self) -> Iterable[Metric]:
        """Families in their order, those without a value left out."""
        return [self._metric(family) for family in FAMILIES if family in self._samples]

    def _metric(self, family: Family) -> Metric:
        labels = (RUN_ID, *family.labels)
        metric: CounterMetricFamily | GaugeMetricFamily | HistogramMetricFamily
        if family.kind is Kind.HISTOGRAM:
            metric = HistogramMetricFamily(family.name, family.help, labels=labels)
        elif family.kind is Kind.COUNTER:
            metric = CounterMetricFamily(family.name, family.help, labels=labels)
        else:
            metric = GaugeMetricFamily(family.name, family.help, labels=labels)
        for sample in self._samples[family]:
            values = (self._run_id, *sample.labels)
            if isinstance(metric, HistogramMetricFamily):
                assert isinstance(sample.value, Buckets)
                bounds = (*(f"{bound}" for bound in BUCKETS), "+Inf")
                metric.add_metric(values, list(zip(bounds, sample.value.counts, strict=True)), sample.value.total)
            else:
                assert not isinstance(sample.value, Buckets)
                metric.add_metric(values, sample.value)
        return metric


def render(run_id: str, samples: Iterable[Sample]) -> bytes:
    """Prometheus' text format, version 0.0.4, which every Prometheus takes."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Collector(run_id, samples))
    return generate_latest(registry)
