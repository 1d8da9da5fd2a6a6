"""Print each token of a text with its log-probability, and the bits per byte: python examples/score.py MODEL TEXT"""

import math
import sys

import torch

import ingot

model, text = ingot.load(sys.argv[1]).eval(), sys.argv[2]
tokens = torch.tensor([[model.tokenizer.end_of_text, *model.tokenizer.encode(text)]])
with torch.inference_mode():
    logprobs = model(tokens)[0, :-1].float().log_softmax(-1)
taken = logprobs.gather(-1, tokens[0, 1:, None])[:, 0]
for token, logprob in zip(tokens[0, 1:].tolist(), taken.tolist(), strict=True):
    print(f"{logprob:8.3f}  {model.tokenizer.decode([token])!r}")
print(f"{-taken.sum().item() / math.log(2) / len(text.encode()):.3f} bits per byte")
