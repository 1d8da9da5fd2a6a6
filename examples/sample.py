"""Sample several answers to several prompts in one batch: python examples/sample.py MODEL PROMPT…"""

import sys

import ingot
from ingot.inference.engine import Engine
from ingot.inference.sampling import Sampling

model = ingot.load(sys.argv[1])
prompts = [model.tokenizer.encode(text) for text in sys.argv[2:] for _ in range(2)]
engine = Engine(model, slots=len(prompts), length=max(map(len, prompts)) + 32)
options = [Sampling(32, temperature=0.8, top_p=0.95, seed=seed) for seed in range(len(prompts))]
for prompt, completion in zip(prompts, engine.complete(prompts, options), strict=True):
    print(repr(model.tokenizer.decode(prompt)), "→", repr(model.tokenizer.decode(completion.tokens)))
