"""How near to a tie the choices of transformers are."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, ClassVar

import torch
from torch.overrides import TorchFunctionMode
from transformers.generation import logits_process

#: Beams that do not count have scores below this, all alike.
OUT_OF_THE_RACE = -1e8
#: Whether a less probable token is kept changes no draw of a drawn test.
DECIDES = 1e-3


class InFloat64(TorchFunctionMode):
    """Keeps in float64 what models compute in float32: norms, softmax and routers. Rotary tables stay as they are.

    It collects how far apart the last expert that a router takes and the first that it leaves are.
    """

    running = False
    router_gaps: ClassVar[list[float]] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Replaces float32 by float64 in what is made of tensors of float64."""
        kwargs = kwargs or {}
        if args and isinstance(args[0], torch.Tensor) and args[0].dtype == torch.float64:
            if func is torch.Tensor.float:
                return args[0]
            wider = {torch.float32: torch.float64}
            args = tuple(wider.get(arg, arg) if isinstance(arg, torch.dtype) else arg for arg in args)
            if kwargs.get("dtype") is torch.float32:
                kwargs = kwargs | {"dtype": torch.float64}
            if getattr(func, "__name__", "") == "topk":
                count = args[1] if len(args) > 1 else kwargs["k"]
                if count < args[0].shape[-1]:
                    best = args[0].sort(dim=-1, descending=True)[0]
                    self.router_gaps.extend((best[..., count - 1] - best[..., count]).reshape(-1).tolist())
        return func(*args, **kwargs)

    @classmethod
    def wrap(cls, model: Any) -> None:
        """Makes a model that has been converted to float64 compute in it."""
        computed = model.forward

        @functools.wraps(computed)
        def forward(*args: Any, **kwargs: Any) -> Any:
            cls.running = True
            try:
                with cls():
                    return computed(*args, **kwargs)
            finally:
                cls.running = False

        model.forward = forward


@contextmanager
def router_margins() -> Iterator[list[float]]:
    """Collects those of the routers of a mixture of experts, of models in float64."""
    InFloat64.router_gaps.clear()
    yield InFloat64.router_gaps


@contextmanager
def margins() -> Iterator[list[float]]:
    """Collects, of every choice that torch makes among scores, how far the nearest two of those considered are apart."""
    found: list[float] = []
    topk, argmax, multinomial, largest = torch.topk, torch.argmax, torch.multinomial, torch.Tensor.max
    rand_like, argmax_method = torch.rand_like, torch.Tensor.argmax

    def gap(values: torch.Tensor, count: int) -> None:
        if InFloat64.running:
            # What a model decides is no choice among tokens.
            return
        values = values.reshape(-1, values.shape[-1])
        best = topk(values, min(count + 1, values.shape[-1]), dim=-1)[0]
        gaps = (best[:, :-1] - best[:, 1:])[best[:, 1:] > OUT_OF_THE_RACE]
        found.extend(gaps[torch.isfinite(gaps)].tolist())

    def seen_topk(values: torch.Tensor, k: int, *args: Any, **kwargs: Any) -> Any:
        if InFloat64.running:
            return topk(values, k, *args, **kwargs)
        if values.min() >= 0 and values.max() <= 1:
            # The candidates of contrastive search: those on the border are what counts, by the ratio of their
            # probabilities.
            best = topk(values, min(k + 1, values.shape[-1]), dim=-1)[0].log()
            gap(best[:, -2:], 1)
        else:
            gap(values, k)
        return topk(values, k, *args, **kwargs)

    def seen_largest(values: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        if kwargs.get("dim") == -1 and values.is_floating_point():
            # What contrastive search chooses.
            gap(values, 1)
        return largest(values, *args, **kwargs)

    def seen_argmax(values: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        gap(values, 1)
        return argmax(values, *args, **kwargs)

    def seen_argmax_method(values: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        if kwargs.get("dim") == -1 and values.is_floating_point():
            # What assisted greedy search chooses.
            gap(values, 1)
        return argmax_method(values, *args, **kwargs)

    def seen_multinomial(weights: torch.Tensor, num_samples: int, *args: Any, **kwargs: Any) -> Any:
        state = torch.get_rng_state()
        noise = torch.empty_like(weights, dtype=torch.float32).exponential_(1)
        gap(weights.log() - noise.to(weights.dtype).log(), num_samples)
        torch.set_rng_state(state)
        # The draws of float32, whatever the weights are in.
        return multinomial(weights.float(), num_samples, *args, **kwargs)

    def seen_rand_like(ratios: torch.Tensor) -> torch.Tensor:
        # What speculative sampling compares the probability of a drafted token with.
        drawn = rand_like(ratios, dtype=torch.float32)
        found.extend((ratios - drawn).abs().reshape(-1).tolist())
        return drawn.to(ratios.dtype)

    # The first `top_k` tokens stay, in whatever order: only the last of them and the next one are near to a choice.
    kept_by_rank = logits_process.TopKLogitsWarper.__call__

    def seen_top_k(self: Any, ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        if self.top_k < scores.shape[-1]:
            best = topk(scores, self.top_k + 1, dim=-1)[0]
            gap(best[:, -2:], 1)
        torch.topk = topk
        try:
            return kept_by_rank(self, ids, scores)
        finally:
            torch.topk = seen_topk

    kept_by_probability = logits_process.MinPLogitsWarper.__call__

    def seen_min_p(self: Any, ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        # The score of a token on the border is shown or not, even where it changes no draw.
        if self.min_p > 0:
            below_best = scores.double().max(-1, keepdim=True)[0] - scores.double()
            found.extend((below_best + math.log(self.min_p)).abs().min(-1)[0].tolist())
        return kept_by_probability(self, ids, scores)

    logits_process.TopKLogitsWarper.__call__ = seen_top_k
    logits_process.MinPLogitsWarper.__call__ = seen_min_p

    # Of 5.23, not of 4.49.
    warper = getattr(logits_process, "TopHLogitsWarper", None)
    kept_by_entropy = warper and warper.__call__

    def seen_top_h(self: Any, ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        # The entropy up to each token but the first, and the threshold. With `top_h=1.0` the last token is at the threshold.
        chosen = topk(scores.double(), min(self.top_n, scores.shape[-1]), dim=-1)[0].softmax(-1)
        sums = torch.special.entr(chosen).cumsum(-1)
        distances = (sums - self.top_h * sums[:, -1:]).abs()[:, 1:]
        found.extend(distances[chosen[:, 1:] > DECIDES].tolist())
        return kept_by_entropy(self, ids, scores)

    if warper:
        warper.__call__ = seen_top_h
    torch.topk, torch.argmax, torch.multinomial = seen_topk, seen_argmax, seen_multinomial
    torch.rand_like = seen_rand_like
    torch.Tensor.max = seen_largest  # type: ignore[method-assign]
    torch.Tensor.argmax = seen_argmax_method  # type: ignore[method-assign]
    try:
        yield found
    finally:
        torch.topk, torch.argmax, torch.multinomial = topk, argmax, multinomial
        torch.rand_like = rand_like
        logits_process.TopKLogitsWarper.__call__ = kept_by_rank
        logits_process.MinPLogitsWarper.__call__ = kept_by_probability
        torch.Tensor.max = largest  # type: ignore[method-assign]
        torch.Tensor.argmax = argmax_method  # type: ignore[method-assign]
        if warper:
            warper.__call__ = kept_by_entropy
