"""Prometheus metrics of the server (prometheus_client). Each server has a registry of its own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from prometheus_client import (
    CONTENT_TYPE_PLAIN_0_0_4,
    CollectorRegistry,
    Counter,
    Histogram,
    disable_created_metrics,
    generate_latest,
)
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

CONTENT_TYPE = CONTENT_TYPE_PLAIN_0_0_4
FIRST_TOKEN_BOUNDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
TOKEN_BOUNDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.25, 0.5, 1.0, 2.5)
REQUEST_BOUNDS = (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0)
ENGINE = (  # what the engine calls a number; what Prometheus calls it
    ("active", "ingot_requests_active", GaugeMetricFamily, "Requests that get tokens."),
    ("waiting", "ingot_requests_waiting", GaugeMetricFamily, "Requests that wait for a slot."),
    ("pages_used", "ingot_cache_pages_used", GaugeMetricFamily, "Pages of the cache that are in use."),
    ("pages_total", "ingot_cache_pages", GaugeMetricFamily, "Pages of the cache."),
    ("prompt_tokens", "ingot_prompt_tokens", CounterMetricFamily, "Tokens of prompts."),
    ("generated_tokens", "ingot_generated_tokens", CounterMetricFamily, "Tokens that were sampled."),
    (
        "shared_tokens",
        "ingot_prefix_shared_tokens",
        CounterMetricFamily,
        "Tokens of prompts found in the prefix cache.",
    ),
    ("preemptions", "ingot_preemptions", CounterMetricFamily, "Requests that gave their pages back for a while."),
)


class Metrics:
    """The server's own counters, and the engine's numbers."""

    def __init__(self) -> None:
        # without this each counter comes with the time of its first count, as a metric of its own
        disable_created_metrics()  # type: ignore[no-untyped-call]
        self.registry = CollectorRegistry()
        self.requests = Counter(
            "ingot_requests", "Answers by path and status.", ["path", "status"], registry=self.registry
        )
        self.abandoned = Counter("ingot_abandoned", "Answers whose client went away.", registry=self.registry)
        self.first_token = self._histogram(
            "ingot_time_to_first_token_seconds", "From taking a request to its first token.", FIRST_TOKEN_BOUNDS
        )
        self.between_tokens = self._histogram(
            "ingot_inter_token_seconds", "Between two tokens of a request.", TOKEN_BOUNDS
        )
        self.whole = self._histogram(
            "ingot_request_seconds", "From taking a request to its last token.", REQUEST_BOUNDS
        )
        self._engine: Mapping[str, int] = {}
        self._model = ""
        self.registry.register(self)

    def _histogram(self, name: str, text: str, bounds: tuple[float, ...]) -> Histogram:
        return Histogram(name, text, buckets=bounds, registry=self.registry)

    def collect(self) -> Iterator[Metric]:
        """The engine's numbers, for the registry."""
        info = GaugeMetricFamily("ingot_info", "The model that is served.", labels=["model"])
        info.add_metric([self._model], 1)
        yield info
        for key, name, family, text in ENGINE:
            yield family(name, text, value=self._engine.get(key, 0))

    def render(self, engine: Mapping[str, int], model: str) -> bytes:
        """Everything as Prometheus reads it; `engine` are the engine's own numbers."""
        self._engine, self._model = engine, model
        return generate_latest(self.registry)
