"""RL on one device: the staircase from static batches to asynchronous sampling, and TRL's GRPOTrainer on transformers' generate.

    static         answers are sampled in waves of `slots`; a wave begins when the longest answer of the one before has ended
    continuous     a slot that is free takes the next answer at once; training waits until all answers of the step have ended
    asynchronous   samplers never stop; training takes finished groups, and sends its weights
    sampling       rollouts alone, no training: what one sampler can do
    engine         the engine alone on prompts of the same lengths, as many tokens each: what rollouts cost beside it
    trl            GRPOTrainer: `generate` on all answers of a step at once, then training; bfloat16 products, no recomputation

All begin from the same checkpoint and have the tasks, rewards, group, prompts a step, temperature, lengths and learning rate of
the stage `rl` of a recipe. Each runs in a process of its own. Counted are the sampled tokens of the steps, by the clock, over the
second half of the steps: most of compilation and captured graphs is in the first. In our modes answers without an advantage
count in the loss, but do not pass through the model (post/rl/skip_zero_advantage.py). Memory is that of the whole device.
Steps are printed as they end, so that a run that is cut off has said what it can. Several samplers share the slots.

    python benchmarks/rl.py CHECKPOINT [--recipe recipes/smollm2-rl.yaml] [--stage rl] [--steps 24] [--slots 128]
        [--samplers 1] [--staleness 2] [--tokens 16384] [--modes static,continuous,asynchronous,trl]
"""

from __future__ import annotations

import argparse
import json
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # to be run as a file

from ingot.checkpoints.checkpoint import load_model
from ingot.checkpoints.convert import export_model
from ingot.envs.episode import Episode
from ingot.envs.mix import TaskMix
from ingot.envs.rollout.episode_run import Limits
from ingot.envs.rollout.rollout import Drawing, rollout
from ingot.envs.task import Task
from ingot.inference.engine import Engine
from ingot.inference.sampling import Sampling
from ingot.post.policy import chat_format
from ingot.post.rl import source as rl_source
from ingot.post.rl import stage as rl
from ingot.post.rl.config import RlConfig
from ingot.post.rl.engine_sampler import EngineSampler
from ingot.recipe.load import load_recipe
from ingot.train.device import choose_device, choose_sampling_precision
from ingot.workspace.metrics import MetricsLog
from ingot.workspace.progress import Progress
from ingot.workspace.stage import StageFolder

MODES = ("static", "continuous", "asynchronous", "sampling", "engine", "trl")
ACCUMULATION = 8  # passes into which TRL divides a step: the logits of all answers at once would not fit


class StaticSampler(EngineSampler):
    """Waves of as many answers as there are slots."""

    def sample(self, tasks: Sequence[Task], *given: Any, **options: Any) -> list[Episode]:
        wave = self.config.slots or len(tasks)
        waves = [tasks[start : start + wave] for start in range(0, len(tasks), wave)]
        return [each for one in waves for each in super(StaticSampler, self).sample(one, *given, **options)]


class ToldMetrics(MetricsLog):
    """Says each step."""

    answers = 0

    def append(self, step: int, values: dict[str, Any]) -> None:
        seconds, tokens = values["seconds"], values["response_length"] * self.answers
        idle, sampler = values["learner_idle_share"], values.get("sampler_tokens_per_second", 0.0)
        told = f"{tokens / seconds:.0f} tokens/s, {seconds:.2f} s, learner idle {idle:.2f}, samplers {sampler:.0f} tokens/s"
        if "cancelled_groups" in values:
            given_up = values["cancelled_groups"] + values["dropped_groups"]
            told += f", {given_up:.0f} groups too old, staleness {values['staleness']:.1f}"
        print(f"STEP {step}: {told}", flush=True)
        super().append(step, values)


class ToldFolder(StageFolder):
    """A folder whose metrics say each step."""

    @property
    def metrics(self) -> MetricsLog:
        return ToldMetrics(self.path / "metrics.jsonl")


def run_ours(mode: str, config: RlConfig, checkpoint: Path) -> dict[str, float]:
    """The stage as a recipe runs it."""
    if mode == "static":
        vars(rl_source)["EngineSampler"] = StaticSampler
    with tempfile.TemporaryDirectory() as folder:
        stage_folder = ToldFolder(Path(folder), seed=0, progress=Progress())
        ToldMetrics.answers = config.prompts_per_step * config.group
        rl.run(config, {"checkpoint": checkpoint}, stage_folder)
        lines = stage_folder.metrics.read()
    timed = lines[config.steps // 2 :]
    answers = ToldMetrics.answers
    tokens, seconds = sum(line["response_length"] * answers for line in timed), sum(line["seconds"] for line in timed)
    idle = sum(line["learner_idle_share"] * line["seconds"] for line in timed) / seconds
    told = {"learner_idle": round(idle, 3), "reward": round(sum(line["reward"] for line in timed) / len(timed), 3)}
    if mode == "asynchronous":
        told["staleness"] = round(sum(line["staleness"] for line in timed) / len(timed), 2)
        given_up = sum(line["cancelled_groups"] + line["dropped_groups"] for line in timed)
        told["groups_too_old_a_step"] = round(given_up / len(timed), 1)
    return figures(tokens, seconds, len(timed), answers) | told


def run_sampling(mode: str, config: RlConfig, checkpoint: Path) -> dict[str, float]:
    """Rollouts of a batch after the other from a copy in the precision of sampling, or the same by the engine alone."""
    device = choose_device(config.device)
    dtype = choose_sampling_precision(config.sampling_precision, device)
    model = load_model(checkpoint, device=device).to(dtype).eval()
    answers = config.prompts_per_step * config.group
    engine = Engine(model, slots=config.slots or answers, length=config.sequence_length)
    chat, mix = chat_format(model), TaskMix(config.tasks)
    tokens, seconds = 0, 0.0
    for step in range(config.steps):
        drawn = mix.generate(step, config.prompts_per_step, "train", first=step * config.prompts_per_step)
        tasks = [task for task in drawn for _ in range(config.group)]
        limits = Limits(config.max_new_tokens, config.sequence_length)
        began = time.perf_counter()
        episodes = rollout(
            tasks, engine, chat, mix.kinds, drawing=Drawing(config.temperature, seed=step), limits=limits
        )
        counts = [each.sampled_count for each in episodes]
        if mode == "engine":  # the same prompts, and the lengths that came of them
            engine.update(None, step + 1)  # it forgets the prompts
            prompts = [each.segments[0].nodes[0].tokens for each in episodes]
            samplings = [Sampling(max_new_tokens=count, temperature=1.0, seed=n) for n, count in enumerate(counts)]
            began = time.perf_counter()
            engine.complete(prompts, samplings)
        if step >= config.steps // 2:
            tokens, seconds = tokens + sum(counts), seconds + time.perf_counter() - began
    return figures(tokens, seconds, config.steps - config.steps // 2, answers)


def run_trl(config: RlConfig, checkpoint: Path) -> dict[str, float]:
    """GRPOTrainer on the same questions; its rewards are those of the environments, on the very tokens."""
    import datasets
    import transformers
    import trl
    from datasets.table import InMemoryTable

    stored = load_model(checkpoint)
    chat, mix = chat_format(stored), TaskMix(config.tasks)
    tasks = mix.generate(0, config.prompts_per_step * config.steps, "train", first=0)
    rows = [
        {"prompt": chat.tokenizer.decode(chat.prompt(t.messages, thinking=t.thinking)), "number": n}
        for n, t in enumerate(tasks)
    ]
    moments = [time.perf_counter()]  # then the ends of the steps
    written: list[float] = []

    def score(completion_ids: list[list[int]], number: list[int], **_: Any) -> list[float]:
        """What the environment gives for each answer."""
        written.append(float(sum(map(len, completion_ids))))
        messages = [chat.parse(tokens) for tokens in completion_ids]
        return [mix.kinds[tasks[n].kind].score(tasks[n], [m]).reward for n, m in zip(number, messages, strict=True)]

    class Clock(transformers.TrainerCallback):  # type: ignore[misc]  # its base has no types here
        def on_step_end(self, *_: Any, **__: Any) -> None:
            if torch.cuda.is_available():
                torch.cuda.synchronize()
            moments.append(time.perf_counter())
            seconds = moments[-1] - moments[-2]
            print(f"STEP {len(moments) - 1}: {written[-1] / seconds:.0f} tokens/s, {seconds:.1f} s", flush=True)

    answers = config.prompts_per_step * config.group
    on_gpu = torch.cuda.is_available()
    with tempfile.TemporaryDirectory() as folder:
        export_model(checkpoint, Path(folder) / "model")
        tokenizer = transformers.AutoTokenizer.from_pretrained(Path(folder) / "model", padding_side="left")
        tokenizer.eos_token = chat.tokenizer.piece(chat.turn_end)
        tokenizer.pad_token = tokenizer.pad_token or tokenizer.eos_token
        arguments = trl.GRPOConfig(
            output_dir=folder,
            max_steps=config.steps,
            per_device_train_batch_size=answers // ACCUMULATION,
            gradient_accumulation_steps=ACCUMULATION,
            num_generations=config.group,
            max_completion_length=config.max_new_tokens,
            temperature=config.temperature,
            learning_rate=config.optimizer.lr,
            lr_scheduler_type="constant",
            scale_rewards="none",
            epsilon_high=0.28,
            beta=0.0,
            shuffle_dataset=False,
            gradient_checkpointing=False,
            optim="adamw_torch_fused",
            bf16=on_gpu,
            use_cpu=not on_gpu,
            model_init_kwargs={"dtype": "float32", "attn_implementation": "sdpa"},
            logging_steps=config.steps,
            save_strategy="no",
            report_to=[],
            disable_tqdm=True,
        )
        trainer = trl.GRPOTrainer(
            model=str(Path(folder) / "model"),
            reward_funcs=score,
            args=arguments,
            train_dataset=datasets.Dataset(
                InMemoryTable.from_pylist(rows), fingerprint="questions"
            ),  # else it is pickled
            processing_class=tokenizer,
            callbacks=[Clock()],
        )
        moments[0] = time.perf_counter()
        trainer.train()
    half = config.steps // 2
    return figures(sum(written[half:]), moments[-1] - moments[half], config.steps - half, answers)


def figures(tokens: float, seconds: float, steps: int, answers: int) -> dict[str, float]:
    """Tokens a second, the mean answer, and what is in use on the device."""
    used = 0.0
    if torch.cuda.is_available():
        free, total = torch.cuda.mem_get_info()
        used = (total - free) / 2**30
    return {
        "tokens_per_second": round(tokens / seconds),
        "seconds_a_step": round(seconds / steps, 3),
        "tokens_an_answer": round(tokens / steps / answers, 1),
        "gib": round(used, 1),
    }


def stage_config(arguments: argparse.Namespace, mode: str) -> RlConfig:
    """The stage of the recipe, with the steps and slots of the benchmark, in a mode."""
    found = next(stage for stage in load_recipe(arguments.recipe).stages if stage.name == arguments.stage).config
    assert isinstance(found, RlConfig)
    changed: dict[str, Any] = {"steps": arguments.steps, "slots": arguments.slots, "record_every": arguments.steps}
    if mode != "asynchronous":
        algorithm = found.algorithm.model_copy(update={"importance": None})
        changed |= {"asynchronous": None, "algorithm": algorithm}
    elif found.asynchronous is not None:
        given = {"samplers": arguments.samplers, "staleness": arguments.staleness}
        known = {name: value for name, value in given.items() if value is not None}
        changed["asynchronous"] = found.asynchronous.model_copy(update=known)
    if arguments.tokens:
        changed["micro_batch_tokens"] = arguments.tokens
    return found.model_copy(update=changed)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkpoint", type=Path)
    parser.add_argument("--recipe", type=Path, default=Path("recipes/smollm2-rl.yaml"))
    parser.add_argument("--stage", default="rl")
    parser.add_argument("--steps", type=int, default=24)
    parser.add_argument(
        "--slots", type=int, default=128, help="answers at once, in our modes; of all samplers together"
    )
    parser.add_argument("--samplers", type=int, help="processes that sample beside training (default: the recipe's)")
    parser.add_argument(
        "--staleness", type=int, help="most updates between sampling and training (default: the recipe's)"
    )
    parser.add_argument("--tokens", type=int, help="tokens of one pass of the learner (default: the recipe's)")
    parser.add_argument("--modes", default=",".join(MODES))
    parser.add_argument("--one", choices=MODES, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one:
        config = stage_config(arguments, arguments.one)
        runs: dict[str, Callable[[RlConfig, Path], dict[str, float]]]
        runs = {
            "trl": run_trl,
            "sampling": partial(run_sampling, "sampling"),
            "engine": partial(run_sampling, "engine"),
        }
        run = runs.get(arguments.one) or partial(run_ours, arguments.one)
        ran = run(config, arguments.checkpoint)
        print("RESULT", json.dumps(ran), flush=True)
        return
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    for mode in arguments.modes.split(","):
        command = [sys.executable, __file__, *sys.argv[1:], "--one", mode]
        lines, result = [], ""
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as running:
            assert running.stdout is not None
            try:
                for line in running.stdout:
                    lines.append(line)
                    if line.startswith("STEP "):  # as it goes: not every mode may be waited for
                        print(f"{mode:14}", line.removeprefix("STEP ").strip(), flush=True)
                    if line.startswith("RESULT "):
                        result = line.removeprefix("RESULT ").strip()
                        break  # whatever still holds its output open is not waited for
            finally:
                running.kill()  # it would run on beside the next
        print(f"{mode:14}", result or "failed:\n" + "".join(lines)[-4500:], flush=True)


if __name__ == "__main__":
    main()
