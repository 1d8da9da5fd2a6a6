"""The options of softmax attention as one value, which the layer passes to every backend and kernel.

    s_ij = scale · q_i·k_j,     c·tanh(s/c) with a softcap c,     o_i = Σ_j softmax_j(s_ij) v_j

over the keys j ≤ i of the document with i − j < window and ⌊p_i/chunk⌋ = ⌊p_j/chunk⌋; a sink is one more logit per head with no
value. A backend names the fields that it understands (allow_list.py): a new field is given to no backend that does not name it.
Defaults are None, which means that the option is off.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True)
class AttentionOptions:
    """The options of a layer's attention besides the mask of documents and causality."""

    scale: float  # factor on q·k
    window: int | None = None  # keys that a query sees, itself included
    chunk: int | None = None  # a query sees only the keys of its own chunk of this many positions
    softcap: float | None = None
    sinks_H: Tensor | None = None  # a learned logit per head
