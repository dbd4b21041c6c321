"""How many users a machine serves, on paper: from what a step reads and multiplies, and what a machine reads and multiplies.

python benches/users.py                         # the table of docs/scale.md
python benches/users.py --context 8000 --speed 5

A step of some texts takes the time to read its weights and their cache, and the time to multiply: the two overlap in part, so
that the sum is an upper bound. docs/scale.md says which measured rates the machines are made of.
"""

from __future__ import annotations

import argparse
import math
from dataclasses import dataclass


@dataclass(frozen=True)
class Model:
    """A model in int4 with its keys and values in bfloat16."""

    name: str
    # Weights that every token uses, and those of all experts.
    shared: float
    experts: float
    # The share of the experts that a token uses.
    chosen: float
    layers: int
    heads: int
    kv_heads: int
    head_dim: int

    # Of a weight, with its part of a scale.
    BYTES = 0.6

    def operations(self, context: float) -> float:
        """Multiplications and additions for a token that attends to so many."""
        weights = self.shared + self.chosen * self.experts
        return 2 * weights + 4 * context * self.layers * self.heads * self.head_dim

    def cache_bytes(self, context: float) -> float:
        """The keys and values of a text."""
        return 2 * 2 * context * self.layers * self.kv_heads * self.head_dim

    def weight_bytes(self, texts: int) -> float:
        """What a step of so many texts reads: of the experts those that any text chooses."""
        return self.BYTES * (self.shared + self.experts * (1 - (1 - self.chosen) ** texts))


@dataclass(frozen=True)
class Machine:
    """A machine, by what its cores do together."""

    cores: int
    kind: str
    # Bytes a second, and operations a second of a core with the rows of many texts and with those of prompts.
    reads: float
    steps: float
    prompts: float


@dataclass(frozen=True)
class User:
    """Somebody in a chat."""

    # The tokens a second that an answer must have.
    speed: float = 10
    # What is new in a turn, what is answered, and the seconds from one turn to the next.
    prompt: float = 500
    answer: float = 300
    seconds: float = 60
    # The tokens that an answer attends to, on average.
    context: float = 2000


# Llama 3.2 1B, Llama 3.1 8B, Qwen3 30B-A3B.
MODELS = [
    Model("1B", 1.24e9, 0, 0, 16, 32, 8, 64),
    Model("8B", 8.03e9, 0, 0, 32, 32, 8, 128),
    Model("30B-A3B", 1.54e9, 28.99e9, 8 / 128, 48, 32, 4, 128),
]
MACHINES = [
    Machine(16, "AVX2", 50e9, 70e9, 90e9),
    Machine(64, "AVX-512", 250e9, 125e9, 320e9),
    Machine(192, "AVX-512", 500e9, 125e9, 320e9),
]
# More texts at once than this are not looked at.
MOST_TEXTS = 4096


def step_seconds(model: Model, machine: Machine, texts: int, context: float) -> float:
    """The next token of each of some texts."""
    read = model.weight_bytes(texts) + texts * model.cache_bytes(context)
    return read / machine.reads + texts * model.operations(context) / (machine.cores * machine.steps)


def load(model: Model, machine: Machine, user: User, texts: int) -> tuple[float, float]:
    """The users of whom so many texts are answered at a time, at the speed that they want, and the share of the machine's time
    that steps and prompts then take."""
    users = texts * user.seconds * user.speed / user.answer
    prompt = model.operations(user.context) / (machine.cores * machine.prompts)
    steps = user.speed * step_seconds(model, machine, texts, user.context)
    return users, steps + users * user.prompt / user.seconds * prompt


def most_users(model: Model, machine: Machine, user: User) -> tuple[int, int]:
    """The most users of a machine that is not fully used, and the texts that are answered at a time; 0 if there is none."""
    most = (0, 0)
    for texts in range(1, MOST_TEXTS):
        users, used = load(model, machine, user, texts)
        if used > 1:
            break
        most = (int(users), texts)
    return most


def table(user: User) -> str:
    """Users by machine and model, and the texts at once in parentheses, in Markdown."""
    lines = [
        "| cores | " + " | ".join(model.name for model in MODELS) + " |",
        "|---" * (1 + len(MODELS)) + "|",
    ]
    for machine in MACHINES:
        most = [most_users(model, machine, user) for model in MODELS]
        cells = " | ".join(f"{users} ({texts})" for users, texts in most)
        lines.append(f"| {machine.cores}, {machine.kind} | {cells} |")
    return "\n".join(lines)


def positive(text: str) -> float:
    """A number of the command line."""
    number = float(text)
    if not 0 < number < math.inf:
        raise argparse.ArgumentTypeError(
            f"must be more than 0, got {text}; leave it out for what the table has"
        )
    return number


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    for name in User.__dataclass_fields__:
        parser.add_argument(f"--{name}", type=positive, default=getattr(User, name))
    print(table(User(**vars(parser.parse_args()))))


if __name__ == "__main__":
    main()
