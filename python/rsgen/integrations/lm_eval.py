"""rsgen in lm-eval: the model `rsgen`, in this process. `python -m rsgen.integrations.lm_eval` is lm-eval's command with it."""

from __future__ import annotations

from collections import Counter
from functools import partial
from typing import Any

import rsgen

from ._rows import require, row_seed

__all__ = ["RsgenLM"]

#: The least number of requests that are scored together.
SCORED_TOGETHER = 256

require("lm_eval.models", "lm_eval")  # lm-eval's own models stay known beside this one
_api: Any = require("lm_eval.api.model", "lm_eval")
_utils: Any = require("lm_eval.utils", "lm_eval")
_texts: Any = require("lm_eval.models.utils", "lm_eval")
_tqdm: Any = require("tqdm", "lm_eval").tqdm


@require("lm_eval.api.registry", "lm_eval").register_model("rsgen")
class RsgenLM(_api.TemplateLM):
    """The model `rsgen`. Its results do not depend on the batch, and are those of lm-eval's `hf` in float32.

    Args:
        pretrained (str | None): As of `rsgen.Generator`; None is the bundled model.
        batch_size (int | str): The requests that are generated together. "auto" is 64. Those that are scored are at least
            256 together, so that the ends of a context share it.
        **options (Any): Arguments of `rsgen.Generator`, such as `dtype` and `num_threads`, and four of its own.
            `max_length`: the tokens of a window; None, the default, is the model's context. `max_gen_toks` (256): the new
            tokens, where a task sets no number. `add_bos_token`: whether texts get special tokens; None is True. `seed`
            (0): a request that samples has a seed of its own, from this one and its context.
    """

    eot_token_id = prefix_token_id = tokenizer_name = None  # properties of the base, attributes here

    def __init__(self, pretrained: str | None = None, *, batch_size: int | str = 1, **options: Any) -> None:
        super().__init__()
        options.pop("device", None)  # lm-eval's command always names one, by default a GPU
        most = options.pop("max_batch_size", None) or 64
        self.batch_size = most if str(batch_size).startswith("auto") else int(batch_size)
        length, self.max_gen_toks = options.pop("max_length", None), options.pop("max_gen_toks", 256)
        self.add_bos_token, self.seed = options.pop("add_bos_token", None), options.pop("seed", 0)
        self.gen = rsgen.Generator(pretrained, **options)
        self.max_length = length or self.gen.config["max_position_embeddings"]
        bos, eos = self.gen.tokenizer.bos_token_id, self.gen.tokenizer.eos_token_id
        self.eot_token_id, self.prefix_token_id = eos, eos if bos is None else bos
        self.tokenizer_name = str(self.gen.name_or_path)

    def tok_encode(self, string: str, add_special_tokens: bool | None = None, **_: Any) -> list[int]:
        """Returns the tokens of a text. One that begins with the special token gets no second."""
        if add_special_tokens is None:
            prefix: Any = self.prefix_token_id
            begins = string.startswith(self.gen.tokenizer.decode(prefix))
            add_special_tokens = self.add_bos_token is not False and not begins
        return list(self.gen.tokenizer.encode(string, add_special_tokens=add_special_tokens))

    def apply_chat_template(self, chat_history: Any, add_generation_prompt: bool = True) -> str:
        """Returns the prompt of a conversation, by the model's template."""
        return self.gen.apply_chat_template(
            chat_history,
            tokenize=False,
            add_generation_prompt=add_generation_prompt,
            continue_final_message=not add_generation_prompt,
        )

    def _loglikelihood_tokens(self, requests: Any, disable_tqdm: bool = False, **_: Any) -> list[Any]:
        answers = []
        together = max(self.batch_size, SCORED_TOGETHER)
        for at in _tqdm(range(0, len(requests), together), "loglikelihood", disable=disable_tqdm):
            part = requests[at : at + together]
            # The last token of a row is predicted, and needs no place in the window.
            rows: list[list[int]] = [(context + end)[-self.max_length - 1 :] for _, context, end in part]
            for (request, _, end), score in zip(part, self.gen.score(rows, top_logprobs=0), strict=True):
                best = score.ranks[-len(end) :] == 1
                answers.append((float(score.logprobs[-len(end) :].sum()), bool(best.all())))
                if request is not None:
                    self.cache_hook.add_partial("loglikelihood", request, answers[-1])
        return answers

    def loglikelihood_rolling(self, requests: Any, disable_tqdm: bool = False) -> list[float]:
        """Returns the log-likelihood of whole texts, in windows of the context's length."""
        texts = [self.tok_encode(request.args[0]) for request in requests]
        windows = [
            (place, (None, *_utils.make_disjoint_window(window)))
            for place, text in enumerate(texts)
            for window in _utils.get_rolling_token_windows(text, self.prefix_token_id, self.max_length, 1)
        ]
        sums = [0.0] * len(texts)
        answers = self._loglikelihood_tokens([window for _, window in windows], disable_tqdm)
        for (place, _), (logprob, _) in zip(windows, answers, strict=True):
            sums[place] += logprob
        return sums

    def generate_until(self, requests: Any, disable_tqdm: bool = False) -> list[str]:
        """Returns the continuation of each context, up to the first of its stop sequences."""
        texts, seen, groups = [""] * len(requests), Counter[str](), dict[Any, list[Any]]()
        for place, request in enumerate(requests):
            context, given = request.args
            seen[context] += 1
            seed = row_seed(self.seed, f"{seen[context]}:{context}")
            groups.setdefault((repr(given), self._alone(context, given) and place), []).append((place, seed))
        parts = [
            g[at : at + self.batch_size] for g in groups.values() for at in range(0, len(g), self.batch_size)
        ]
        for part in _tqdm(parts, "generate_until", disable=disable_tqdm):
            contexts, given = [requests[place].args[0] for place, _ in part], requests[part[0][0]].args[1]
            fields: Any = _texts.normalize_gen_kwargs(given, self.max_gen_toks)
            until, new = [stop for stop in fields.pop("until") if stop], fields.pop("max_gen_toks")
            rows = [self.tok_encode(context)[-max(self.max_length - new, 1) :] for context in contexts]
            if not fields["do_sample"]:
                fields.pop("temperature", None)
            if self._alone(contexts[0], given):
                fields["stopping_criteria"] = partial(self._ends, until, len(rows[0]))
            else:
                fields["stop_strings"] = until or None
            out = self.gen.generate(rows, max_new_tokens=new, seed=[seed for _, seed in part], **fields)
            for (place, _), context, ids in zip(part, contexts, out.token_ids, strict=True):
                text = self.gen.tokenizer.decode(ids, skip_special_tokens=True)
                texts[place] = _texts.postprocess_generated_text(text, until, None)
                self.cache_hook.add_partial("generate_until", (context, given), texts[place])
        return texts

    def _alone(self, context: str, given: Any) -> bool:
        """Whether a stop sequence could begin in the context. There it does not count for lm-eval, but for `stop_strings`."""
        until = _texts.normalize_gen_kwargs(given)["until"]
        return any(context.endswith(stop[:n]) for stop in until for n in range(1, len(stop)))

    def _ends(self, until: list[str], start: int, ids: Any, _: Any) -> bool:
        text = self.gen.tokenizer.decode(ids[0, start:])
        return any(stop in text for stop in until)


if __name__ == "__main__":
    require("lm_eval.__main__", "lm_eval").cli_evaluate()
