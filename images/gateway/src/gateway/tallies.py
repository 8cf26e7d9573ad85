"""Counters and histograms for what happens with every request and token.

The library's take a lock for each number, a histogram's for each bucket it passes. These are for one
thread, in which the page is rendered too.
"""

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from itertools import accumulate

from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector


class Count:
    def __init__(self) -> None:
        self.total = 0

    def inc(self, amount: int = 1) -> None:
        self.total += amount


class Counts(Collector):
    """One count for each set of values of `labels`."""

    def __init__(self, name: str, text: str, labels: Sequence[str]) -> None:
        self._name = name
        self._text = text
        self._labels = labels
        self._of: dict[tuple[str, ...], Count] = {}

    def of(self, *values: str) -> Count:
        if (known := self._of.get(values)) is None:
            known = self._of[values] = Count()
        return known

    def describe(self) -> Iterator[Metric]:
        yield CounterMetricFamily(self._name, self._text, labels=self._labels)

    def collect(self) -> Iterator[Metric]:
        family = CounterMetricFamily(self._name, self._text, labels=self._labels)
        for values, count in self._of.items():
            family.add_metric(values, count.total)
        yield family


class Spread:
    """How many durations fell between which two of `bounds_s`."""

    def __init__(self, bounds_s: Sequence[float]) -> None:
        self._bounds_s = bounds_s
        self._counts = [0] * (len(bounds_s) + 1)
        self.sum_s = 0.0

    def observe(self, seconds: float) -> None:
        self._counts[bisect_left(self._bounds_s, seconds)] += 1
        self.sum_s += seconds

    def buckets(self) -> list[tuple[str, float]]:
        names = [*map(str, map(float, self._bounds_s)), "+Inf"]
        return list(zip(names, accumulate(self._counts), strict=True))


class Durations(Collector):
    """One histogram for each set of values of `labels`."""

    def __init__(
        self, name: str, text: str, bounds_s: Sequence[float], labels: Sequence[str] = ()
    ) -> None:
        self._name = name
        self._text = text
        self._bounds_s = bounds_s
        self._labels = labels
        self._of: dict[tuple[str, ...], Spread] = {}

    def of(self, *values: str) -> Spread:
        if (known := self._of.get(values)) is None:
            known = self._of[values] = Spread(self._bounds_s)
        return known

    def describe(self) -> Iterator[Metric]:
        yield HistogramMetricFamily(self._name, self._text, labels=self._labels)

    def collect(self) -> Iterator[Metric]:
        family = HistogramMetricFamily(self._name, self._text, labels=self._labels)
        for values, spread in self._of.items():
            family.add_metric(values, spread.buckets(), spread.sum_s)
        yield family
