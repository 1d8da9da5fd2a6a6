"""How `ingot model` draws models: a table of all, or one with its layer pattern and counts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from ingot.cli.show import byte_size, console, quantity
from ingot.model.describe import RESIDUALS, describe_block, layer_groups, signs

if TYPE_CHECKING:
    from ingot.model.config import ModelConfig
    from ingot.model.count import ModelCount
    from ingot.model.presets.preset import Preset, Published

COLOURS = ("cyan", "magenta", "yellow", "green", "blue", "red", "bright_cyan", "bright_magenta")


def facts(counted: ModelCount, length: int) -> dict[str, Any]:
    """The numbers of a model for `--json`."""
    config, length = counted.config, min(length, counted.config.context)
    return {
        "parameters": counted.total,
        "active_parameters": counted.active,
        "embedding_parameters": counted.embedding,
        "head_parameters": counted.head,
        "multi_token_parameters": counted.multi_token.total,
        "context": config.context,
        "layers": config.depth,
        "width": config.width,
        "vocabulary_size": config.vocabulary_size,
        "cache_bytes_per_token": counted.cache_bytes_per_token,
        "cache_bytes_at_context": counted.cache_bytes(config.context),
        "state_bytes": counted.state_bytes,
        "training_flops_per_token": counted.training_flops_per_token(length),
        "training_flops_length": length,
        "mixtures": {name: vars(mixture) for name, mixture in counted.mixtures.items()},
    }


def show_list(found: Sequence[tuple[Preset, ModelCount]], length: int) -> None:
    """All presets in a table, the miniatures last."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("name", no_wrap=True)
    for column in ("total", "active", "context", "cache/token", "at context", f"FLOPs/token @{length_words(length)}"):
        table.add_column(column, justify="right", no_wrap=True)
    for mini in (False, True):
        for preset, counted in found:
            if preset.mini == mini:
                table.add_row(preset.name, *_row(counted, length), style="dim" if mini else "")
    console().print(table)
    console().print(
        "cache: bytes of keys, values and states of one sequence at 2 bytes per value. Miniatures take their vocabulary\n"
        "from the tokenizer: embedding and head are not counted, and FLOPs are at their own context.",
        style="dim",
    )


def _row(counted: ModelCount, length: int) -> tuple[str, ...]:
    config = counted.config
    dense = counted.active == counted.total
    return (
        parameters(counted.total),
        "" if dense else parameters(counted.active),
        length_words(config.context),
        byte_size(counted.cache_bytes_per_token),
        byte_size(counted.cache_bytes(config.context)),
        quantity(counted.training_flops_per_token(min(length, config.context))),
    )


def show_model(name: str, counted: ModelCount, preset: Preset | None, length: int) -> None:
    """Everything about one model."""
    out = console()
    config = counted.config
    out.print(Text(name, style="bold") + Text(f"  {preset.title}. {preset.about}" if preset else "", style="dim"))
    for title, content in (
        ("shape", _pairs(_shape(config))),
        ("layers", _layers(config, out.width)),
        ("parameters", _parts(counted)),
        ("experts", _mixtures(counted)),
        ("cost", _pairs(_cost(counted, length))),
        ("published", _published(counted, preset.published) if preset and preset.published else None),
        ("recipe", _pairs(_recipe(preset)) if preset and not preset.mini else None),
        ("notes", Group(*(Text(f"- {note}") for note in preset.notes)) if preset and preset.notes else None),
    ):
        if content is not None:
            out.print(Text(f"\n{title}", style="bold"))
            out.print(content)


def _pairs(rows: Iterable[tuple[str, str]]) -> Table:
    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(style="dim", no_wrap=True)
    table.add_column()
    for key, value in rows:
        table.add_row(key, Text(value))
    return table


def _shape(config: ModelConfig) -> list[tuple[str, str]]:
    vocabulary = (
        "from the tokenizer, not counted here" if config.vocabulary_size is None else f"{config.vocabulary_size:,}"
    )
    head = "head tied to the embedding" if config.tied_embeddings else "head with its own matrix"
    norm = f"RMS, ε {config.norm.epsilon:g}" + (", zero-centred" if config.norm.zero_centred else "")
    rules = dict.fromkeys(RESIDUALS[config.blocks[name].residual] for name in config.layer_names)
    rows = [
        ("layers × width", f"{config.depth} × {config.width}"),
        ("vocabulary", f"{vocabulary}; {head}"),
        ("context", f"{config.context:,}"),
        ("norm", f"{norm}; {', '.join(rules)}"),
    ]
    if config.multi_token:
        steps = f"{config.multi_token.steps} step" + ("s" if config.multi_token.steps > 1 else "")
        shared = " that share one module" if config.multi_token.shared else ""
        rows.append(("multi-token", f"{steps}{shared}, block {config.multi_token.block}"))
    if config.quantisation:
        rows.append(("rounding", f"{config.quantisation.parts} to {config.quantisation.bits} bits"))
    return [*rows, ("exports as", config.export_as or "the first type that can express it")]


def _layers(config: ModelConfig, width: int) -> RenderableType:
    """The layers as coloured signs in rows, what each sign means, and how the order is spelt."""
    marks = signs(config)
    colours = {name: COLOURS[number % len(COLOURS)] for number, name in enumerate(marks)}
    rows, layer = [Text("  0 ", style="dim")], 0
    for group in layer_groups(config.layer_names):
        if len(rows[-1]) + len(group) + 1 > width and layer:
            rows.append(Text(f"{layer:3} ", style="dim"))
        for name in group:
            rows[-1].append(marks[name], style=colours[name])
        rows[-1].append(" ")
        layer += len(group)
    legend = Table(box=None, show_header=False, pad_edge=False)
    for _ in range(3):
        legend.add_column(no_wrap=True)
    legend.add_column()
    for name, mark in marks.items():
        times = f"{config.layer_names.count(name)}×"
        legend.add_row(Text(mark, style=colours[name]), name, times, describe_block(config.blocks[name]))
    return Group(*rows, legend, Text(f"layers: {config.layers}", style="dim"))


def _parts(counted: ModelCount) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column("part", no_wrap=True)
    for column in ("total", "active", "share"):
        table.add_column(column, justify="right")
    rows = [("embedding", counted.embedding, counted.embedding)]
    rows += [(name, size.total, size.active) for name, size in counted.parts.items()]
    rows += [("head", counted.head, counted.head)] if not counted.config.tied_embeddings else []
    for name, total, active in (row for row in rows if row[1]):
        share = f"{total / counted.total:.1%}"
        table.add_row(name, parameters(total), parameters(active) if active != total else "", share)
    all_active = parameters(counted.active) if counted.active != counted.total else ""
    table.add_row(Text("all", style="bold"), parameters(counted.total), all_active, "")
    if counted.multi_token.total:
        further = counted.multi_token
        table.add_row("multi-token, beside", parameters(further.total), parameters(further.active), "")
    return table


def _mixtures(counted: ModelCount) -> Table | None:
    if not counted.mixtures:
        return None
    table = Table(box=None, pad_edge=False, header_style="dim")
    for column in (
        "block",
        "experts",
        "active",
        "expert width",
        "shared width",
        "granularity",
        "sparsity",
        "activation",
    ):
        table.add_column(column, justify="left" if column == "block" else "right")
    for name, one in counted.mixtures.items():
        numbers = (one.experts, one.active, one.expert_width, one.shared_width or "")
        ratios = (f"{one.granularity:.3g}", f"{one.sparsity:.3g}", f"{one.activation_ratio:.2%}")
        table.add_row(name, *map(str, numbers), *ratios)
    return table


def _cost(counted: ModelCount, length: int) -> list[tuple[str, str]]:
    context, per_token = counted.config.context, counted.cache_bytes_per_token
    limits = sorted({cache.limit for cache in counted.caches if cache.limit})
    growing = sum(cache.token for cache in counted.caches if not cache.limit)
    text = f"{per_token:,} bytes per token"
    if limits:
        text += f"; beyond {' and '.join(map(str, limits))} tokens {growing:,}, because windows and chunks are full"
    rows = [("cache", text)] if per_token else []
    rows += [("state", f"{byte_size(counted.state_bytes)} per sequence")] if counted.state_bytes else []
    rows.append(("at context", f"{byte_size(counted.cache_bytes(context))} for one sequence of {context:,} tokens"))
    for at in dict.fromkeys((min(length, context), context)):
        rows.append(("training", f"{quantity(counted.training_flops_per_token(at))} FLOPs per token at {at:,} tokens"))
    return rows


def _published(counted: ModelCount, published: Published) -> RenderableType:
    table = Table(box=None, pad_edge=False, header_style="dim")
    for column in ("", "published", "counted", "difference", "which counts"):
        table.add_column(column, justify="left" if column in ("", "which counts") else "right")
    for name, value, here, shares in comparisons(counted, published):
        table.add_row(name, parameters(value), parameters(here, 4), difference(here, value), shares)
    return Group(table, Text(f"why: {published.reason}")) if published.reason else table


def comparisons(counted: ModelCount, published: Published) -> list[tuple[str, int, int, str]]:
    """What was published beside what is counted in the same way: name, published, counted, what counts."""
    rows = [("total", published.total, counted.counted(published.total_counts), published.total_counts)]
    if published.active is not None:
        here = counted.counted(published.active_counts, active=True)
        rows.append(("active", published.active, here, published.active_counts))
    words = {"body": "blocks", "embedding": "embedding", "head": "head", "multi_token": "multi-token modules"}
    return [(name, value, here, ", ".join(words[share] for share in shares)) for name, value, here, shares in rows]


def difference(here: int, value: int) -> str:
    """`+0.31%`: how much more is counted than was published."""
    return f"{here / value - 1:+.2%}".replace("-0.00%", "+0.00%")


def _recipe(preset: Preset) -> list[tuple[str, str]]:
    stated = [(key.replace("_", " "), str(text)) for key, text in preset.recipe.model_dump().items() if text]
    return [*stated, ("sources", preset.sources)]


def parameters(value: float, digits: int = 3) -> str:
    """`671B`: parameters in millions, billions, trillions."""
    for limit, unit in ((1e12, "T"), (1e9, "B"), (1e6, "M"), (1e3, "k")):
        if value >= limit * (1 - 0.5 * 10**-digits):
            return f"{float(f'{value / limit:.{digits}g}'):g}{unit}"
    return f"{value:g}"


def length_words(tokens: int) -> str:
    """`128k`: lengths in units of 1024 where they are multiples."""
    for unit, size in (("M", 1 << 20), ("k", 1 << 10)):
        if tokens >= size and tokens % size == 0:
            return f"{tokens // size}{unit}"
    return str(tokens)
