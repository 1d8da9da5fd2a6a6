"""Teach a model your conversations, then to be brief, and measure both: python examples/from_python.py MODEL CONVERSATIONS.jsonl

Run it again: what is finished is reused, what was interrupted goes on. Change TARGET: only the steps that read it run again.
"""

import json
import sys
from pathlib import Path

import ingot

TARGET = 80  # characters
model, file = sys.argv[1:3]
steps = int(sys.argv[3]) if len(sys.argv) > 3 else 60
conversations = [json.loads(line) for line in Path(file).read_text(encoding="utf-8").splitlines()]
questions = sorted({row["messages"][0]["content"] for row in conversations})


def brevity(episode):
    return 1 - min(len(episode.answer), TARGET) / TARGET


taught = ingot.sft(model, conversations, steps=steps, lora={"rank": 16}, optimizer={"lr": 2e-4})
brief = ingot.rl(taught, questions, rewards=[brevity], steps=steps, group=8, optimizer={"lr": 1e-5})
suite = {"suite": "tasks", "kinds": [{"kind": "no_think", "count": 32}], "rewards": [brevity]}
for name, result in (("taught", taught), ("brief", brief)):
    brevities = ingot.evaluate(result, [suite]).scores["reward/brevity"].estimate
    print(f"{name}: {brevities.value:.3f} ± {brevities.standard_error:.3f}")
print(brief.as_recipe())
