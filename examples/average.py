"""Average the weights of several checkpoints into a Hugging Face folder: python examples/average.py OUT MODEL MODEL…

`ingot merge` knows more methods (slerp, TIES, DARE) and larger models; this is the idea in five lines.
"""

import sys

import ingot

models = [ingot.load(path) for path in sys.argv[2:]]
state = {name: sum(other.state_dict()[name] for other in models) / len(models) for name in models[0].state_dict()}
models[0].load_state_dict(state)
print(ingot.export_model(models[0], sys.argv[1]))
