"""One layer: a mixer and a feed-forward, each wrapped by the residual rule.

    pre            x + f(norm(x))                    GPT-2 and most others
    post           x + norm(f(x))                    OLMo 2 (arXiv 2501.00656)
    sandwich       x + post_norm(f(norm(x)))         Gemma 2, Trinity
    norm_residual  h = norm(x);  α·h + β·f(h)        MiniMax-01 (DeepNorm's scales, arXiv 2203.00555)

A layer may have only a mixer or only a feed-forward (Nemotron-H). Training, sampling
and pipelines all run a layer through `Block.forward`.
"""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor, nn

from ingot.model.config import BlockConfig
from ingot.model.context import Context
from ingot.model.feed_forward.mixture import MixtureOfExperts
from ingot.model.mixers.cache import Cache
from ingot.model.mixers.mixer import Site, mix
from ingot.model.norm import RmsNorm, add_rms_norm


class Block(nn.Module):
    """One layer; `mixer` or `feed_forward` is None where it has none."""

    def __init__(self, config: BlockConfig, site: Site) -> None:
        super().__init__()
        self.config = config
        self.mixer, self.feed_forward = None, None
        if config.mixer is not None:
            self.mixer = config.mixer.build(site)
            self.mixer_norm, self.mixer_post_norm = _norms(config, site)
        if config.feed_forward is not None:
            self.feed_forward = config.feed_forward.build(site)
            self.feed_forward_norm, self.feed_forward_post_norm = _norms(config, site)

    def forward(self, x_BTD: Tensor, context: Context, cache: Cache | None = None) -> Tensor:
        """The residual stream after this layer."""
        mixer, feed_forward, config = self.mixer, self.feed_forward, self.config
        if mixer is not None and feed_forward is not None and config.residual == "pre":
            assert self.mixer_norm is not None and self.feed_forward_norm is not None
            y_BTD = mix(mixer, self.mixer_norm(x_BTD), context, cache)
            x_BTD, h_BTD = add_rms_norm(x_BTD, y_BTD, self.feed_forward_norm)
            return x_BTD + feed_forward(h_BTD, context)
        if mixer is not None:
            norms = (self.mixer_norm, self.mixer_post_norm)
            x_BTD = self._around(lambda h: mix(mixer, h, context, cache), x_BTD, *norms, config.mixer_scales)
        if feed_forward is not None:
            norms = (self.feed_forward_norm, self.feed_forward_post_norm)
            x_BTD = self._around(lambda h: feed_forward(h, context), x_BTD, *norms, config.feed_forward_scales)
        return x_BTD

    def _around(
        self,
        part: Callable[[Tensor], Tensor],
        x_BTD: Tensor,
        norm: RmsNorm | None,
        post_norm: RmsNorm | None,
        scales: tuple[float, float],
    ) -> Tensor:
        """The residual rule around one part."""
        h_BTD = x_BTD if norm is None else norm(x_BTD)
        y_BTD = part(h_BTD)
        if self.config.residual == "norm_residual":
            alpha, beta = scales
            return alpha * h_BTD + beta * y_BTD
        return x_BTD + (y_BTD if post_norm is None else post_norm(y_BTD))

    def report(self, context: Context) -> None:
        """Report to the pass's Record, if it has one, what the router did. Called after every pass of the block."""
        if isinstance(self.feed_forward, MixtureOfExperts):
            self.feed_forward.report(context)


def _norms(config: BlockConfig, site: Site) -> tuple[RmsNorm | None, RmsNorm | None]:
    """The norms before and after a part; None where the rule has none."""
    before = None if config.residual == "post" else RmsNorm(site.width, site.norm)
    after = RmsNorm(site.width, site.norm) if config.residual in ("post", "sandwich") else None
    return before, after
