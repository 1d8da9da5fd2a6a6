"""Train a small model by a loop of one's own, in plain PyTorch: python examples/train_loop.py TEXT_FILE [STEPS]

Parts of the package are ordinary modules: a `Transformer` gives logits, and any optimizer of torch trains it.
"""

import sys
from pathlib import Path

import torch
from torch.nn import functional as F

from ingot.model.config import BlockConfig, ModelConfig
from ingot.model.feed_forward.dense import FeedForwardConfig
from ingot.model.initialise import initialise
from ingot.model.mixers.attention import AttentionConfig
from ingot.model.transformer import Transformer

LENGTH, ROWS = 128, 8
text = torch.tensor(list(Path(sys.argv[1]).read_bytes()))
steps = int(sys.argv[2]) if len(sys.argv) > 2 else 200
block = BlockConfig(
    mixer=AttentionConfig(heads=4, key_value_heads=2, head_width=32), feed_forward=FeedForwardConfig(width=384)
)
model = Transformer(
    ModelConfig(vocabulary_size=256, width=128, blocks={"layer": block}, layers="layer*4", context=LENGTH)
)
initialise(model, seed=1)
optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3, weight_decay=0.1)
random = torch.Generator().manual_seed(1)
for step in range(steps):
    starts = torch.randint(len(text) - LENGTH, (ROWS,), generator=random)
    rows = torch.stack([text[start : start + LENGTH + 1] for start in starts])
    loss = F.cross_entropy(model(rows[:, :-1]).flatten(0, 1), rows[:, 1:].flatten())
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    if step % 20 == 0 or step == steps - 1:
        print(f"step {step}: {loss.item():.3f} nats a byte")
