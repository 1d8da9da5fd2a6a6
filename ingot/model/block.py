"""One layer: a mixer and a feed-forward, each wrapped by the residual rule.

    pre            x + f(norm(x))                    GPT-2 and most others
    post           x + norm(f(x))                    OLMo 2 (arXiv 2501.00656)
    sandwich       x + post_norm(f(norm(x)))         Gemma 2, Trinity
    norm_residual  h = norm(x);  α·h + β·f(h)        MiniMax-01 (DeepNorm's scales, arXiv 2203.00555)

A layer with only a mixer or only a feed-forward (Nemotron-H) is the same thing with one of the two missing.
"""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor, nn

from ingot.model.config import BlockConfig
from ingot.model.context import Context
from ingot.model.feed_forward.mixture import MixtureOfExperts
from ingot.model.mixers.cache import Cache
from ingot.model.mixers.mixer import Site, mix
from ingot.model.norm import RmsNorm
from ingot.model.norm_residual import Unsummed, add_norm, add_norm_can


class Block(nn.Module):
    """One layer; `mixer` or `feed_forward` is None where it has none."""

    apart = False  # layers that make the norm again from what entered it must see it as a step of its own (float8.py)

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

    def forward(self, x_BTD: Tensor | Unsummed, context: Context, cache: Cache | None = None) -> Tensor | Unsummed:
        """The stream after this layer; one that comes as a sum still to be made also leaves as one (`joins`)."""
        if isinstance(x_BTD, Unsummed):
            assert cache is None
            return self._join(x_BTD, context)
        mixer, feed_forward = self.mixer, self.feed_forward
        if mixer is not None:
            norms = self.mixer_norm, self.mixer_post_norm
            x_BTD = self._wrap(x_BTD, lambda h: mix(mixer, h, context, cache), *norms, self.config.mixer_scales)
        if feed_forward is not None:
            norms, scales = (self.feed_forward_norm, self.feed_forward_post_norm), self.config.feed_forward_scales
            x_BTD = self._wrap(x_BTD, lambda h: feed_forward(h, context), *norms, scales)
        return x_BTD

    def joins(self, x_BTD: Tensor) -> bool:
        """Whether sums and norms of this layer can be one in a pass without caches (norm_residual.py)."""
        if self.apart or self.config.residual != "pre":
            return False
        if self.mixer is not None and not add_norm_can(self.mixer_norm, x_BTD):
            return False
        return self.feed_forward is None or add_norm_can(self.feed_forward_norm, x_BTD)

    def _join(self, stream: Unsummed, context: Context) -> Unsummed:
        if self.mixer is not None:
            assert self.mixer_norm is not None
            x_BTD, h_BTD = add_norm(stream, self.mixer_norm)
            stream = Unsummed(x_BTD, mix(self.mixer, h_BTD, context))
        if self.feed_forward is not None:
            assert self.feed_forward_norm is not None
            x_BTD, h_BTD = add_norm(stream, self.feed_forward_norm)
            stream = Unsummed(x_BTD, self.feed_forward(h_BTD, context))
        return stream

    def report(self, context: Context) -> None:
        """Tell the Record of the pass, if it has one, what the router did: to be called after every pass of the block."""
        if isinstance(self.feed_forward, MixtureOfExperts):
            self.feed_forward.report(context)

    def _wrap(
        self,
        x_BTD: Tensor,
        part: Callable[[Tensor], Tensor],
        norm: RmsNorm | None,
        post_norm: RmsNorm | None,
        scales: tuple[float, float],
    ) -> Tensor:
        h_BTD = x_BTD if norm is None else norm(x_BTD)
        y_BTD = part(h_BTD)
        if self.config.residual == "norm_residual":
            alpha, beta = scales
            return alpha * h_BTD + beta * y_BTD
        return x_BTD + (y_BTD if post_norm is None else post_norm(y_BTD))


def _norms(config: BlockConfig, site: Site) -> tuple[RmsNorm | None, RmsNorm | None]:
    """The norms before and after a part; None where the rule has none."""
    before = None if config.residual == "post" else RmsNorm(site.width, site.norm)
    after = RmsNorm(site.width, site.norm) if config.residual in ("post", "sandwich") else None
    return before, after
