"""Drafts by the model's multi-token module (DeepSeek-V3, arXiv 2412.19437, section 2.2; ingot/model/multi_token.py).

With tokens 0 … n known and states h_0 … h_{n−1} of the model,

    first draft     g_t = module(h_t, token_{t+1}) for every t < n, kept in a cache like that of one more layer;
                    d_1 = argmax head(g_{n−1})
    each further    g_{n−1+j} = module(g_{n−2+j}, d_j);     d_{j+1} = argmax head(g_{n−1+j})

so one module drafts as far ahead as asked, as vLLM and SGLang run DeepSeek-V3's, GLM-4.5's and Qwen3-Next's. Its entries lie in
pages with the numbers of the request's own, and are written whenever the model reads: prompts (`read`) and verified tokens
(`look_ahead`); what further drafts write is written over by these. An entry depends on the token after it, so the last entry of
a page that two texts share is that of the first text: drafts may be worse for it, but never the text.

Shapes: B rows, T tokens, D width.
"""

from __future__ import annotations

from collections.abc import Sequence
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from ingot.inference.request import Request
from ingot.model.context import Context
from ingot.model.mixers.cache import Cache
from ingot.model.transformer import Transformer


class ModuleDrafter:
    """Keeps the drafts of each request until they are asked for."""

    def __init__(self, model: Transformer, cache: Cache | None, length: int) -> None:
        assert model.multi_token is not None
        self._model, self._module, self._cache, self._length = model, model.multi_token, cache, length
        self._drafts: WeakKeyDictionary[Request, list[int]] = WeakKeyDictionary()

    def propose(self, request: Request, count: int) -> list[int]:
        """At most `count` tokens that may follow the request's context; none right after its prompt was read."""
        return self._drafts.pop(request, [])[:count]

    def read(self, states_BTD: Tensor, following_BT: Tensor, context: Context) -> Tensor:
        """The model has computed these states; `following` are the tokens after them. The module's states."""
        return self._module.step(states_BTD, following_BT, self._model.embed, context, self._cache)

    def look_ahead(
        self,
        requests: Sequence[Request],
        states_BTD: Tensor,
        following_BT: Tensor,
        context: Context,
        counts: Sequence[int],
    ) -> None:
        """Read the states that were verified (`context.lengths_B` of each row) and draft `counts` tokens for each request."""
        assert context.lengths_B is not None and context.reach is not None
        device, rows_B = states_BTD.device, torch.arange(len(requests), device=states_BTD.device)
        last_B = context.lengths_B - 1
        state_BD = self.read(states_BTD, following_BT, context)[rows_B, last_B]
        position_B, counts_B = context.positions_BT[:, 0] + last_B, torch.tensor(counts, device=device)
        drafts = [torch.argmax(self._model.head(state_BD), dim=-1)]
        for step in range(1, max(counts)):
            further = Context(
                (position_B + step).clamp(max=self._length - 1)[:, None],
                slots_B=context.slots_B,
                lengths_B=(counts_B > step).long(),  # rows that want no more write nothing
                reach=min(context.reach + step, self._length),
                pages_BR=context.pages_BR,
            )
            state_BD = self.read(state_BD[:, None], drafts[-1][:, None], further)[:, 0]
            drafts.append(torch.argmax(self._model.head(state_BD), dim=-1))
        for request, count, tokens in zip(requests, counts, torch.stack(drafts, dim=1).tolist(), strict=True):
            self._drafts[request] = tokens[:count]
