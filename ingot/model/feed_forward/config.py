"""The feed-forwards that a block may name by `kind`, besides `file.py:Name`; without a kind it is dense.

A feed-forward is one file in this folder (channel.py says what it must have) and one entry here.
"""

from __future__ import annotations

from typing import Annotated

from ingot.model.feed_forward.channel import ChannelConfig
from ingot.model.feed_forward.dense import FeedForwardConfig
from ingot.model.feed_forward.mixture import MoeConfig
from ingot.workspace.kinds import Parts

FEED_FORWARDS = Parts(ChannelConfig, "feed-forward", (FeedForwardConfig, MoeConfig), default="dense")  # type: ignore[type-abstract]
AnyFeedForward = Annotated[ChannelConfig, FEED_FORWARDS]
