"""Figures that only grow, kept as plain numbers: counting one costs a fraction of a microsecond, and no lock."""

from bisect import bisect_left
from collections.abc import Sequence

from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric

PREFIX = "vllm_omni:"

SECONDS = (0.05, 0.1, 0.25, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 30.0, 60.0, 120.0, 300.0)
FAST_SECONDS = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 60.0)
RATIOS = (0.1, 0.25, 0.5, 0.75, 0.9, 1.0, 1.25, 1.5, 2.0, 5.0, 10.0)


class Tally:
    """A counter; `_total` is put behind its name when it is shown."""

    def __init__(self, name: str, what: str, *labels: str) -> None:
        self._name, self._what, self._labels = name, what, labels
        self._values: dict[tuple[str, ...], float] = {} if labels else {(): 0}

    def add(self, *labels: str, by: float = 1) -> None:
        """Count."""
        self._values[labels] = self._values.get(labels, 0) + by

    def family(self, model: str) -> Metric:
        """Return what is shown."""
        family = CounterMetricFamily(PREFIX + self._name, self._what, labels=("model_name", *self._labels))
        for labels, value in self._values.items():
            family.add_metric((model, *labels), value)
        return family


class _Counts:
    __slots__ = ("buckets", "total")

    def __init__(self, size: int) -> None:
        self.buckets = [0] * size
        self.total = 0.0


class Spread:
    """A histogram; `bounds` are upper ones."""

    def __init__(self, name: str, what: str, bounds: Sequence[float], *labels: str) -> None:
        self._name, self._what, self._labels = name, what, labels
        self._bounds = bounds
        self._counts: dict[tuple[str, ...], _Counts] = {} if labels else {(): _Counts(len(bounds) + 1)}

    def add(self, value: float, *labels: str) -> None:
        """Count a value in."""
        counts = self._counts.get(labels)
        if counts is None:
            counts = self._counts[labels] = _Counts(len(self._bounds) + 1)
        counts.buckets[bisect_left(self._bounds, value)] += 1
        counts.total += value

    def family(self, model: str) -> Metric:
        """Return what is shown."""
        family = HistogramMetricFamily(PREFIX + self._name, self._what, labels=("model_name", *self._labels))
        for labels, counts in self._counts.items():
            shown: list[tuple[str, float]] = []
            so_far = 0
            for bound, count in zip((*map(str, self._bounds), "+Inf"), counts.buckets, strict=True):
                so_far += count
                shown.append((bound, so_far))
            family.add_metric((model, *labels), shown, counts.total)
        return family


def gauge(name: str, what: str, model: str, value: float) -> Metric:
    """Return a figure of this moment."""
    family = GaugeMetricFamily(PREFIX + name, what, labels=("model_name",))
    family.add_metric((model,), value)
    return family


def counter(name: str, what: str, model: str, value: float) -> Metric:
    """Return a figure that somebody else counts."""
    family = CounterMetricFamily(PREFIX + name, what, labels=("model_name",))
    family.add_metric((model,), value)
    return family
