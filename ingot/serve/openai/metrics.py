"""Counters and latencies in the text format of Prometheus (version 0.0.4), written by hand: it is a few lines.

    # TYPE NAME counter
    NAME{label="value"} 3

A histogram has a cumulative counter for each upper bound, a sum and a count.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import accumulate

FIRST_TOKEN_BOUNDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
TOKEN_BOUNDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.25, 0.5, 1.0, 2.5)
REQUEST_BOUNDS = (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0)


class Histogram:
    """How often a value fell below each of `bounds`."""

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds, self.counts, self.sum = bounds, [0] * (len(bounds) + 1), 0.0

    def observe(self, value: float, times: int = 1) -> None:
        """Count a value, or several equal ones."""
        self.counts[bisect_left(self.bounds, value)] += times
        self.sum += value * times

    def lines(self, name: str) -> Iterator[str]:
        """The lines of its samples."""
        for bound, count in zip([*map(repr, self.bounds), "+Inf"], accumulate(self.counts), strict=True):
            yield f'{name}_bucket{{le="{bound}"}} {count}'
        yield f"{name}_sum {self.sum!r}"
        yield f"{name}_count {sum(self.counts)}"


class Metrics:
    """What the server counts itself. It belongs to the thread of the event loop."""

    def __init__(self) -> None:
        self.requests: Counter[tuple[str, int]] = Counter()  # by path and status
        self.abandoned = 0  # answers whose client went away
        self.first_token = Histogram(FIRST_TOKEN_BOUNDS)
        self.between_tokens = Histogram(TOKEN_BOUNDS)
        self.whole = Histogram(REQUEST_BOUNDS)

    def render(self, engine: Mapping[str, int], model: str) -> str:
        """Everything as Prometheus reads it; `engine` are the engine's own numbers."""
        label = model.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
        lines = ["# HELP ingot_info The model that is served.", "# TYPE ingot_info gauge"]
        lines += [f'ingot_info{{model="{label}"}} 1']
        lines += ["# HELP ingot_requests_total Answers by path and status.", "# TYPE ingot_requests_total counter"]
        for (path, status), count in sorted(self.requests.items()):
            lines.append(f'ingot_requests_total{{path="{path}",status="{status}"}} {count}')
        own = (("ingot_abandoned_total", "counter", "Answers whose client went away.", self.abandoned),)
        engines = ((name, kind, text, engine[key]) for key, name, kind, text in ENGINE)
        for name, kind, text, value in (*own, *engines):
            lines += [f"# HELP {name} {text}", f"# TYPE {name} {kind}", f"{name} {value}"]
        for name, text, histogram in (
            ("ingot_time_to_first_token_seconds", "From taking a request to its first token.", self.first_token),
            ("ingot_inter_token_seconds", "Between two tokens of a request.", self.between_tokens),
            ("ingot_request_seconds", "From taking a request to its last token.", self.whole),
        ):
            lines += [f"# HELP {name} {text}", f"# TYPE {name} histogram", *histogram.lines(name)]
        return "\n".join(lines) + "\n"


ENGINE = (  # what the engine calls a number; what Prometheus calls it
    ("active", "ingot_requests_active", "gauge", "Requests that get tokens."),
    ("waiting", "ingot_requests_waiting", "gauge", "Requests that wait for a place."),
    ("pages_used", "ingot_cache_pages_used", "gauge", "Pages of the cache that are in use."),
    ("pages_total", "ingot_cache_pages", "gauge", "Pages of the cache."),
    ("prompt_tokens", "ingot_prompt_tokens_total", "counter", "Tokens of prompts."),
    ("generated_tokens", "ingot_generated_tokens_total", "counter", "Tokens that were sampled."),
    ("shared_tokens", "ingot_prefix_shared_tokens_total", "counter", "Tokens of prompts that another had read."),
    ("preemptions", "ingot_preemptions_total", "counter", "Requests that gave their pages back for a while."),
)
