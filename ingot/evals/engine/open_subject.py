"""Opens what an eval stage measures: a checkpoint with an engine here, or a model behind a server."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path

from ingot.evals.bases.suite import Local, Subject
from ingot.evals.config import LONGEST, EvalConfig
from ingot.evals.engine.answer import Answerer
from ingot.evals.engine.prompt import Form
from ingot.workspace.errors import ArtifactError, DataError
from ingot.workspace.stage import StageFolder

ANSWERS = "answers"  # beside the stages of a run
CPU_PAGE = (
    4  # tokens: choices share whole pages of their question, and a CPU copies short pages nearly as fast as long ones
)


@contextmanager
def open_subject(
    config: EvalConfig, inputs: Mapping[str, Path], folder: StageFolder
) -> Iterator[tuple[Subject, Answerer]]:
    """The model as the recipe gives it, and what answers for it."""
    if config.data and not Path(config.data).is_dir():
        fix = "give the folder in which each data set has a folder of its own, or leave it out"
        raise DataError("there is no such folder", place=f"data: {config.data}", fix=fix)
    subject = Subject(
        name="",
        form="text",
        stop=folder.stop,
        shards=inputs.get("shards"),
        data=Path(config.data) if config.data else None,
        limit=config.limit,
        seed=folder.seed,
        task_seed=config.task_seed,
    )
    answers = folder.path.parent / ANSWERS if config.remember else None
    if config.endpoint is not None:
        yield _open_server(config, subject, answers)
    elif "checkpoint" in inputs:
        with _open_checkpoint(config, inputs["checkpoint"], subject, answers, folder) as opened:
            yield opened
    else:
        fix = "give --input checkpoint=MODEL, or an endpoint"
        raise ArtifactError("there is nothing to measure", place="eval", fix=fix)


def _open_server(config: EvalConfig, subject: Subject, answers: Path | None) -> tuple[Subject, Answerer]:
    from ingot.evals.engine.server import ServerAnswerer
    from ingot.tokens.tokenizer import Tokenizer

    assert config.endpoint is not None
    tokenizer = Tokenizer.load(Path(config.tokenizer)) if config.tokenizer else None
    subject = replace(
        subject,
        name=config.endpoint.model,
        form="text" if config.form == "text" else "chat",
        given_tokenizer=tokenizer,
        max_tokens=config.max_tokens or LONGEST,
    )
    return subject, ServerAnswerer(config.endpoint, subject.stop, answers, tokenizer)


@contextmanager
def _open_checkpoint(
    config: EvalConfig, path: Path, subject: Subject, answers: Path | None, folder: StageFolder
) -> Iterator[tuple[Subject, Answerer]]:
    from ingot.evals.engine.local import LocalAnswerer
    from ingot.evals.engine.memory import AnswerMemory, RememberingEngine, model_name

    local = load_local(config, path)
    engine, tokenizer = local.engine, local.model.tokenizer
    assert tokenizer is not None
    spoken: Form = "text" if tokenizer.chat_template is None else "chat"
    subject = replace(
        subject,
        name=str(path),
        form=spoken if config.form == "auto" else config.form,
        local=local,
        given_tokenizer=tokenizer,
        max_tokens=engine.length,
    )
    with closing(engine), AnswerMemory(None if answers is None else answers / f"{model_name(engine)}.jsonl") as memory:
        answerer = LocalAnswerer(tokenizer, RememberingEngine(engine, memory), subject.stop)
        yield subject, answerer
    if answerer.cut:
        folder.progress.say(f"{answerer.cut} prompts are longer than {engine.length} tokens: cut from the left")


def load_local(config: EvalConfig, path: Path) -> Local:
    """The weights in the precision and on the device that the options say, with an engine."""
    import torch

    from ingot.checkpoints.checkpoint import load_model
    from ingot.inference.divided.open import devices_from, open_divided
    from ingot.inference.engine import Engine
    from ingot.model.mixers.cache import PAGE
    from ingot.train.device import choose_device

    device = choose_device(config.device)
    devices = devices_from(device, config.tensor)
    half = config.precision == "bfloat16" or (config.precision == "auto" and device.type == "cuda")
    held = device if config.tensor == 1 else torch.device("cpu")  # whole, it may fit no device
    model = load_model(path, device=held).to(torch.bfloat16 if half else torch.float32).eval()
    if model.tokenizer is None:
        raise ArtifactError(
            "the checkpoint has no tokenizer", place=str(path), fix="give a checkpoint that a training stage made"
        )
    length = config.max_tokens or min(model.config.context, LONGEST)
    if config.tensor == 1:
        page = CPU_PAGE if device.type == "cpu" else PAGE
        return Local(model, Engine(model, slots=config.slots, length=length, page=page))
    engine = open_divided(model, devices, slots=config.slots, length=length)
    return Local(engine.model, engine)
