"""Compares the detectors of watermarks with those of the installed transformers, on drawn texts and settings.

`test_live_strategies.py` compares marked tokens. Ten texts are drawn for each of ``RSGEN_PARITY_CASES``.
"""

from __future__ import annotations

import random
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

np = pytest.importorskip("numpy", reason="live parity needs numpy")
torch = pytest.importorskip("torch", reason="live parity needs torch (pip install torch==2.13.0)")
transformers = pytest.importorskip("transformers", reason="live parity needs transformers")

import rsgen  # noqa: E402
from parity_settings import BASE_SEED, CASES  # noqa: E402
from transformers.generation.logits_process import SynthIDTextWatermarkLogitsProcessor  # noqa: E402

TEXTS = 10
#: The rounding of torch's erfc and of float32 logarithms.
P_VALUE, POSTERIOR = 2e-15, 2e-5


@pytest.mark.parametrize("seed", range(BASE_SEED, BASE_SEED + CASES), ids=lambda seed: f"seed{seed}")
def test_green_tokens_are_counted_as_transformers_counts_them(seed: int) -> None:
    rng = random.Random(f"green {seed}")
    for _ in range(TEXTS):
        vocab = rng.choice([2, 61, 400, 5000])
        model = SimpleNamespace(bos_token_id=0, is_encoder_decoder=False, vocab_size=vocab)
        settings = {
            "greenlist_ratio": rng.uniform(0.05, 0.95),
            "hashing_key": rng.choice([15485863, rng.randrange(1 << 62), -rng.randrange(1 << 62)]),
            "seeding_scheme": rng.choice(["lefthash", "selfhash"]),
            "context_width": rng.randint(1, 5),
        }
        ignore = rng.random() < 0.5
        rows, length = rng.randint(1, 3), rng.randint(settings["context_width"] + 2, 60)
        few = rng.randint(2, vocab)
        ids = np.array([[rng.randrange(1, few) for _ in range(length)] for _ in range(rows)])
        if rng.random() < 0.5:
            ids[:, 0] = 0
        threshold = rng.uniform(-3, 4)
        detectors = [
            cls(model, "cpu", settings, ignore_repeated_ngrams=ignore)
            for cls in (rsgen.WatermarkDetector, transformers.WatermarkDetector)
        ]
        ours = detectors[0](ids, z_threshold=threshold, return_dict=True)
        theirs = detectors[1](torch.from_numpy(ids), z_threshold=threshold, return_dict=True)
        for name in ("num_tokens_scored", "num_green_tokens", "green_fraction", "z_score", "prediction"):
            got, expected = getattr(ours, name), getattr(theirs, name)
            assert np.array_equal(got, expected), f"seed {seed}, {settings}: {name} {got} {expected}"
            assert got.dtype == expected.dtype
        np.testing.assert_allclose(ours.p_value, theirs.p_value, rtol=P_VALUE)
        np.testing.assert_allclose(ours.confidence, theirs.confidence, rtol=0, atol=P_VALUE)
        assert np.array_equal(detectors[0](ids), detectors[1](torch.from_numpy(ids)))


@pytest.mark.parametrize("seed", range(BASE_SEED, BASE_SEED + CASES), ids=lambda seed: f"seed{seed}")
def test_g_values_masks_and_probabilities_are_those_of_transformers(seed: int, tmp_path: Path) -> None:
    rng = random.Random(f"synthid {seed}")
    torch.manual_seed(seed)
    # With one layer transformers drops a dimension of several texts.
    depth, ngram_len = rng.randint(2, 19), rng.randint(2, 6)
    settings = {
        "ngram_len": ngram_len,
        "keys": [rng.randrange(-(1 << 63), 1 << 63) for _ in range(depth)],
        "sampling_table_size": rng.choice([1000, 65536]),
        "sampling_table_seed": rng.randrange(1 << 40),
        "context_history_size": rng.choice([0, 2, 1024]),
    }
    model = _trained(depth, settings, tmp_path)
    theirs_processor = SynthIDTextWatermarkLogitsProcessor(**settings, device="cpu")
    theirs = transformers.SynthIDTextWatermarkDetector(
        model, theirs_processor, SimpleNamespace(eos_token_id=1)
    )
    ours = rsgen.SynthIDTextWatermarkDetector(
        rsgen.BayesianDetectorModel.from_pretrained(tmp_path), tokenizer=1
    )
    for _ in range(TEXTS):
        rows, length = rng.randint(1, 3), rng.randint(ngram_len + 1, 80)
        few = rng.choice([3, 50, 40_000])
        ids = np.array([[rng.randrange(few) for _ in range(length)] for _ in range(rows)])
        tensor = torch.from_numpy(ids)
        label = f"seed {seed}, {settings}, {ids.tolist()}"
        assert np.array_equal(ours.compute_g_values(ids), theirs_processor.compute_g_values(tensor)), label
        contexts = theirs_processor.compute_context_repetition_mask(tensor)
        assert np.array_equal(ours.compute_context_repetition_mask(ids), contexts), label
        ends = theirs_processor.compute_eos_token_mask(tensor, 1)
        assert np.array_equal(ours.compute_eos_token_mask(ids), ends), label
        expected = theirs(tensor)[0].detach().numpy().reshape(-1)
        np.testing.assert_allclose(ours(ids), expected, rtol=POSTERIOR, atol=1e-30, err_msg=label)


def _trained(depth: int, settings: dict[str, Any], folder: Path) -> Any:
    """A model of drawn parameters, saved into a folder."""
    config = transformers.BayesianDetectorConfig(watermarking_depth=depth)
    config.set_detector_information("a/b", settings)
    model = transformers.BayesianDetectorModel(config)
    with torch.no_grad():
        likelihood = model.likelihood_model_watermarked
        likelihood.beta.normal_(-1.0, 1.0)
        likelihood.delta.normal_(0.0, 0.5)
        model.prior.fill_(float(torch.rand(()).item()))
    model.save_pretrained(folder)
    return model.eval()
