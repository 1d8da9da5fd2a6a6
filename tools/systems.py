"""Writes docs/systems/ from the presets: a page per system with its composition, counts and published recipe, and an index.

python tools/systems.py            write the pages
python tools/systems.py --check    fail if the pages are not what the presets say (CI)
"""

from __future__ import annotations

import sys
from itertools import groupby
from pathlib import Path

from ingot.cli.show import byte_size, quantity
from ingot.cli.show_model import comparisons, difference, length_words, parameters
from ingot.model.count import ModelCount, count
from ingot.model.describe import RESIDUALS, layer_groups, signs
from ingot.model.presets.preset import Preset, presets

FOLDER = Path(__file__).parent.parent / "docs" / "systems"
LENGTH = 4096
ROW = 72  # signs and spaces in one row of a pattern
HEAD = """# Systems

Published systems as presets, generated from `ingot/model/presets/` by `make systems`. `ingot model list` prints the counts,
`ingot model show NAME` draws one. A recipe starts from a preset with `model: { preset: NAME }`; other keys are laid over it.
Every system has a miniature of a few million parameters with the same parts, for a CPU.

| system | presets | layers are made of | Hugging Face type |
| --- | --- | --- | --- |
"""


def main() -> int:
    """Write or check the pages; returns the exit code."""
    wanted = pages()
    if "--check" not in sys.argv:
        FOLDER.mkdir(parents=True, exist_ok=True)
        for path in set(FOLDER.glob("*.md")) - set(wanted):
            path.unlink()
        for path, text in wanted.items():
            path.write_text(text, encoding="utf-8")
        return 0
    found = {path: path.read_text(encoding="utf-8") for path in FOLDER.glob("*.md")}
    wrong = sorted(path.name for path in found.keys() | wanted.keys() if found.get(path) != wanted.get(path))
    if wrong:
        sys.stderr.write(
            f"{FOLDER} is out of date with the presets ({', '.join(wrong)}); run `make systems` and commit it\n"
        )
    return 1 if wrong else 0


def pages() -> dict[Path, str]:
    """Every page by its path."""
    systems = [list(group) for _, group in groupby(presets(), key=lambda preset: preset.system)]
    index = HEAD + "".join(index_row(group) for group in systems)
    return {FOLDER / "index.md": index} | {FOLDER / f"{group[0].system}.md": page(group) for group in systems}


def index_row(system: list[Preset]) -> str:
    """The line of one system."""
    full = [preset for preset in system if not preset.mini]
    kinds = dict.fromkeys(
        (block.mixer.kind if block.mixer else "") for preset in full for block in preset.model.blocks.values()
    )
    mixture = any(count(preset.model).mixtures for preset in full)
    made = ", ".join(kind.replace("_", " ") for kind in kinds if kind) + (" + experts" if mixture else "")
    names = ", ".join(f"`{preset.name}`" for preset in full)
    return f"| [{full[0].title}]({full[0].system}.md) | {names} | {made} | {hub_types(full)} |\n"


def hub_types(full: list[Preset]) -> str:
    """The model types that the presets export as."""
    return ", ".join(dict.fromkeys(f"`{preset.model.export_as}`" for preset in full))


def page(system: list[Preset]) -> str:
    """The page of one system."""
    first = system[0]
    full = [preset for preset in system if not preset.mini]
    parts = [f"# {first.title}\n\n{first.about}\n\nHugging Face type: {hub_types(full)}. Sources: {first.sources}.\n"]
    parts.append("## Sizes\n\n" + sizes(system))
    parts += [section(preset) for preset in full]
    parts.append("## Published recipe\n\n" + recipe(full))
    notes = list(dict.fromkeys(note for preset in full for note in preset.notes))
    if notes:
        parts.append("## Doubts\n\n" + "".join(f"- {note}\n" for note in notes))
    mini = next(preset.name for preset in system if preset.mini)
    parts.append(f"## On a CPU\n\n```yaml\npretrain:\n  model: {{ preset: {mini} }}\n```\n")
    return "\n".join(parts)


def sizes(system: list[Preset]) -> str:
    """The counts of all presets of a system."""
    rows = [
        f"| preset | layers × width | total | active | context | cache per token | training FLOPs per token at {LENGTH} |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for preset in system:
        counted, config = count(preset.model), preset.model
        cells = (
            f"`{preset.name}`",
            f"{config.depth} × {config.width}",
            parameters(counted.total),
            parameters(counted.active) if counted.active != counted.total else "",
            length_words(config.context),
            byte_size(counted.cache_bytes_per_token)
            + (f" + {byte_size(counted.state_bytes)} per sequence" if counted.state_bytes else ""),
            quantity(counted.training_flops_per_token(min(LENGTH, config.context))),
        )
        rows.append(f"| {' | '.join(cells)} |")
    foot = "\n\nMiniatures: without embedding and head, whose size the tokenizer decides; FLOPs at their own context.\n"
    return "\n".join(rows) + foot


def section(preset: Preset) -> str:
    """The composition of one size."""
    config, counted = preset.model, count(preset.model)
    marks = signs(config)
    rows = ["| | block | layers | mixer | feed-forward |", "| --- | --- | --- | --- | --- |"]
    for name, mark in marks.items():
        block = config.blocks[name]
        mixer = block.mixer.describe() if block.mixer else "–"
        feed_forward = block.feed_forward.describe() if block.feed_forward else "–"
        rows.append(f"| {mark} | `{name}` | {config.layer_names.count(name)} | {mixer} | {feed_forward} |")
    table = "\n".join(rows)
    return f"## {preset.name}\n\n```text\n{pattern(preset)}\n```\n\n`{config.layers}`\n\n{table}\n\n{facts(preset, counted)}\n"


def pattern(preset: Preset) -> str:
    """The layers as signs, in rows."""
    marks, rows = signs(preset.model), [""]
    for group in layer_groups(preset.model.layer_names):
        if rows[-1] and len(rows[-1]) + len(group) > ROW:
            rows.append("")
        rows[-1] += "".join(marks[name] for name in group) + " "
    return "\n".join(row.rstrip() for row in rows)


def facts(preset: Preset, counted: ModelCount) -> str:
    """Norms, embeddings, experts, and the published counts beside ours."""
    config = preset.model
    rules = dict.fromkeys(RESIDUALS[config.blocks[name].residual] for name in config.layer_names)
    lines = [
        f"- {', '.join(rules)}; ε {config.norm.epsilon:g}"
        + ("; zero-centred gains" if config.norm.zero_centred else "")
    ]
    lines.append(f"- vocabulary {config.vocabulary_size:,}, {'tied' if config.tied_embeddings else 'untied'} head")
    for name, one in counted.mixtures.items():
        ratios = (
            f"granularity {one.granularity:.3g}, sparsity {one.sparsity:.3g}, activation {one.activation_ratio:.2%}"
        )
        lines.append(f"- experts of `{name}`: {ratios}")
    if config.multi_token:
        further = parameters(counted.multi_token.total)
        shared = ", sharing one module" if config.multi_token.shared else ""
        lines.append(
            f"- multi-token prediction: {config.multi_token.steps} steps ahead{shared}, {further} parameters beside the total"
        )
    if preset.published:
        for name, value, here, shares in comparisons(counted, preset.published):
            both = f"published {parameters(value, 4)}, counted {parameters(here, 4)} ({difference(here, value)})"
            lines.append(f"- {name}: {both}; counts {shares}")
        lines += [f"- why they differ: {preset.published.reason}"] if preset.published.reason else []
    return "\n".join(lines)


def recipe(full: list[Preset]) -> str:
    """The facts of the recipe; where sizes differ, one row for each."""
    rows = ["| | |", "| --- | --- |"]
    for key in type(full[0].recipe).model_fields:
        texts: dict[str, list[str]] = {}
        for preset in full:
            texts.setdefault(getattr(preset.recipe, key), []).append(preset.name)
        for text, names in texts.items():
            if text:
                whose = "" if len(texts) == 1 else f" ({', '.join(names)})"
                rows.append(f"| {key.replace('_', ' ')}{whose} | {text.replace('|', '&#124;')} |")
    return "\n".join(rows) + "\n"


if __name__ == "__main__":
    sys.exit(main())
