"""Two tasks of Inspect, as a user of it writes them."""

from inspect_ai import Epochs, Task, task
from inspect_ai.dataset import MemoryDataset, Sample
from inspect_ai.model import ChatMessageSystem, ChatMessageUser, GenerateConfig
from inspect_ai.scorer import choice, exact, includes, match, model_graded_qa, pattern
from inspect_ai.solver import chain, generate, multiple_choice, prompt_template, system_message, use_tools
from inspect_ai.tool import bash


@task
def divisors(count: int = 20) -> Task:
    """Questions with choices, some with several right ones."""
    samples = [
        Sample(
            input=f"Which of these are divisible by {number}?",
            choices=[str(number), str(number + 1), str(2 * number), str(3 * number + 1)],
            target=["A", "C"],
            id=f"q{number}",
        )
        for number in range(2, count + 2)
    ]
    return Task(MemoryDataset(samples), solver=multiple_choice(multiple_correct=True, cot=True), scorer=choice())


@task
def sums() -> Task:
    """Free answers, asked twice, with five scorers."""
    samples = [
        Sample(input=f"{number} + {3 * number}?", target=str(4 * number), metadata={"language": "French"})
        for number in range(2, 32)
    ]
    asked = [ChatMessageSystem(content="You add."), ChatMessageUser(content="500 + 700?")]
    samples.append(Sample(input=asked, target=["1,200", "1200"]))
    steps = chain(system_message("Answer in {language}, please."), prompt_template("Add: {prompt}"))
    return Task(
        MemoryDataset(samples),
        solver=[steps, generate(stop_seqs=["\n\n"])],
        scorer=[match(), includes(), match(location="any", numeric=True), exact(), pattern(r"(\d+)")],
        epochs=Epochs(2, "mean"),
        config=GenerateConfig(max_tokens=33, temperature=0.5),
    )


@task
def shell() -> Task:
    """A task with a tool."""
    return Task([Sample(input="ls", target="x")], solver=[use_tools(bash()), generate()], scorer=match())


@task
def graded() -> Task:
    """A task whose answers a model grades."""
    return Task([Sample(input="Why?", target="Because.")], scorer=model_graded_qa())
