"""Weights of integers: what they cost in quality, and packed models."""

import pickle
import sys
from pathlib import Path

import pytest
import rsgen

ROOT = Path(__file__).parent.parent
STORY = ROOT / "python" / "rsgen" / "models" / "story-3m"
sys.path.insert(0, str(ROOT / "benches"))
from quality import BOUNDS, loss, stories  # noqa: E402


@pytest.fixture(scope="module")
def texts() -> list[str]:
    return stories(60)


@pytest.fixture(scope="module")
def plain_loss(gen: rsgen.Generator, texts: list[str]) -> float:
    return loss(gen, texts)


@pytest.mark.parametrize("dtype", BOUNDS)
@pytest.mark.parametrize("compute_dtype", ["float32", "bfloat16"])
def test_the_loss_rises_by_little(
    dtype: str, compute_dtype: str, texts: list[str], plain_loss: float
) -> None:
    rounded = loss(rsgen.Generator(dtype=dtype, compute_dtype=compute_dtype), texts)
    # bfloat16 attention alone changes the loss by less than a thousandth.
    assert -0.01 < rounded / plain_loss - 1 < BOUNDS[dtype] + 0.001


@pytest.mark.parametrize("dtype", BOUNDS)
def test_a_packed_model_gives_the_tokens_of_the_one_it_was_packed_from(dtype: str, tmp_path: Path) -> None:
    seen: list[tuple[str, int, int]] = []
    size = rsgen.pack(STORY, tmp_path / "packed", dtype=dtype, progress=lambda *step: seen.append(step))
    assert seen[-1][0] == "pack"
    assert seen[-1][1] == seen[-1][2]
    assert 0 < size < (STORY / "model.safetensors").stat().st_size * 0.56
    packed = rsgen.Generator(tmp_path / "packed")
    rounded = rsgen.Generator(STORY, dtype=dtype)
    for keywords in ({}, {"num_beams": 3}, {"do_sample": True, "seed": 4}):
        outs = [gen.generate("Once upon a time", max_new_tokens=30, **keywords) for gen in (packed, rounded)]
        assert outs[0].text == outs[1].text
    assert (
        pickle.loads(pickle.dumps(packed)).generate("One day", max_new_tokens=5).text
        == rounded.generate("One day", max_new_tokens=5).text
    )


def test_the_command_packs(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    import subprocess

    out = tmp_path / "packed"
    command = [sys.executable, "-m", "rsgen", "pack", str(STORY), str(out), "--dtype", "int8"]
    assert subprocess.run(command, check=False).returncode == 0
    assert "int8, " in capfd.readouterr().out
    assert subprocess.run([*command[:-1], "int4"], check=False).returncode == 2
    assert "`out` must be a new folder" in capfd.readouterr().err


def test_what_cannot_be_packed_is_refused(tmp_path: Path) -> None:
    with pytest.raises(rsgen.ConfigError, match='`dtype` must be "int8" or "int4"'):
        rsgen.pack(STORY, tmp_path / "out", dtype="bfloat16")
    with pytest.raises(rsgen.LoadError):
        rsgen.pack(tmp_path / "missing", tmp_path / "out", dtype="int4")

    def fails(*_: object) -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        rsgen.pack(STORY, tmp_path / "out", dtype="int4", progress=fails)
    assert not (tmp_path / "out").exists()
    rsgen.pack(STORY, tmp_path / "out", dtype="int4")
    with pytest.raises(rsgen.ConfigError, match='must be "int4" or unset'):
        rsgen.Generator(tmp_path / "out", dtype="int8")
