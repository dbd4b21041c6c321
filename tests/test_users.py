"""The users of a machine on paper, held to draws of experts and to what the documentation says."""

from __future__ import annotations

import argparse
import random
import sys
from dataclasses import replace
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
sys.path.append(str(ROOT / "benches"))
import users  # noqa: E402

MIXTURE = users.MODELS[2]


def test_the_table_is_that_of_the_documentation() -> None:
    assert users.table(users.User()) in (ROOT / "docs" / "scale.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("texts", [1, 8, 32])
def test_a_step_reads_the_experts_that_its_texts_choose(texts: int) -> None:
    draw = random.Random(0)
    used = [len({expert for _ in range(texts) for expert in draw.sample(range(128), 8)}) for _ in range(400)]
    read = MIXTURE.weight_bytes(texts) / MIXTURE.BYTES - MIXTURE.shared
    assert read / MIXTURE.experts == pytest.approx(sum(used) / len(used) / 128, rel=0.02)


def test_no_machine_has_less_than_no_time_left() -> None:
    for model in users.MODELS:
        for machine in users.MACHINES:
            _, texts = users.most_users(model, machine, users.User())
            if texts:
                assert users.load(model, machine, users.User(), texts)[1] <= 1
            assert users.load(model, machine, users.User(), texts + 1)[1] > 1


def test_more_cores_and_shorter_prompts_serve_more() -> None:
    machine, user = users.MACHINES[0], users.User()
    few, _ = users.most_users(users.MODELS[0], machine, user)
    assert users.most_users(users.MODELS[0], replace(machine, cores=32), user)[0] > few
    assert users.most_users(users.MODELS[0], machine, replace(user, prompt=50))[0] > few
    assert users.most_users(users.MODELS[0], machine, replace(user, context=30_000))[0] < few


@pytest.mark.parametrize("text", ["0", "-1", "nan", "inf"])
def test_an_option_that_is_no_positive_number_is_refused(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match=f"must be more than 0, got {text}"):
        users.positive(text)
