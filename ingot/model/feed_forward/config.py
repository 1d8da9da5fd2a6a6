"""The union of the feed-forwards: a block names one by `kind`; without a kind it is dense.

A feed-forward is one file in this folder (channel.py says what it must have) and one line here.
"""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BeforeValidator, Field

from ingot.model.feed_forward.dense import FeedForwardConfig
from ingot.model.feed_forward.mixture import MoeConfig


def _with_kind(value: Any) -> Any:
    return {"kind": "dense", **value} if isinstance(value, dict) else value


AnyFeedForward = Annotated[
    FeedForwardConfig | MoeConfig,
    Field(discriminator="kind"),
    BeforeValidator(_with_kind),
]
