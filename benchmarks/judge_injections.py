"""How often a real judge is fooled by the battery of injections (ingot/envs/verifiers/judges/injections.py).

    python benchmarks/judge_injections.py --endpoint http://127.0.0.1:8000/v1 --name MODEL [--key VARIABLE] [--at-once 8]
    python benchmarks/judge_injections.py --model FOLDER_OR_GGUF [--device cpu] [--codes 5]

Prints a table for docs/log.md: the grades of right answers, of wrong ones, and of wrong ones with an injection. A model that
grades right and wrong answers alike is no judge, whatever else it does.
"""

from __future__ import annotations

import argparse

from ingot.data.synthesize.config import EndpointConfig
from ingot.envs.verifiers.judges.endpoint import EndpointJudge
from ingot.envs.verifiers.judges.injections import measure, table
from ingot.envs.verifiers.judges.judge import Judge
from ingot.envs.verifiers.judges.policy import PolicyJudge


def local_judge(path: str, device: str) -> Judge:
    """A model from disk through our engine; its replies follow the schema."""
    from ingot.checkpoints.checkpoint import load_model
    from ingot.inference.engine import Engine
    from ingot.tokens.chat import ChatFormat

    model = load_model(path, device=device)
    if model.tokenizer is None:
        raise SystemExit(f"{path} has no tokenizer")
    length = min(4096, model.config.context)
    return PolicyJudge(Engine(model, slots=1, length=length), ChatFormat(model.tokenizer), max_tokens=32)


def main() -> None:
    """Ask and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--endpoint", help="address of a server, up to /v1")
    parser.add_argument("--name", default="", help="name of the model there")
    parser.add_argument("--key", help="environment variable with the server's key")
    parser.add_argument("--codes", type=int, default=1, help="codes under which each answer is judged")
    parser.add_argument("--at-once", type=int, default=8, help="requests on their way to a server at a time")
    parser.add_argument("--no-structure", action="store_true", help="do not send response_format")
    parser.add_argument("--model", help="a model of ours, a Hugging Face folder or a GGUF file")
    parser.add_argument("--device", default="cpu")
    options = parser.parse_args()
    if bool(options.endpoint) == bool(options.model):
        parser.error("give either --endpoint or --model")
    if options.endpoint:
        config = EndpointConfig(
            url=options.endpoint, model=options.name, api_key_variable=options.key, concurrency=options.at_once
        )
        judge: Judge = EndpointJudge(config, max_tokens=64, structured=not options.no_structure)
        outcome = measure(judge, codes=options.codes, at_once=options.at_once)
    else:
        outcome = measure(local_judge(options.model, options.device), codes=options.codes)  # an engine has one caller
    print("\n".join(table(outcome)))


if __name__ == "__main__":
    main()
