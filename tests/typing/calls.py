"""Calls as users write them, for the type checkers: nothing here runs."""

from collections.abc import Generator
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import rsgen
from numpy.typing import NDArray
from pydantic import BaseModel, TypeAdapter
from rsgen.constraints import Constraint, DisjunctiveConstraint, PhrasalConstraint
from rsgen.stopping_criteria import EosTokenCriteria, MaxTimeCriteria, StopStringCriteria
from rsgen.types import FinishReason, LogitsProcessor, StoppingCriterion, Streamer
from typing_extensions import assert_type

gen = rsgen.Generator("folder", dtype="bfloat16", num_threads=4)
gen = rsgen.Generator.from_pretrained("folder", revision="main")

out = gen.generate("text", max_new_tokens=5, do_sample=True, top_p=0.9, seed=[1, 2], stop_strings=["a"])
assert_type(out, rsgen.GenerationOutput[None])
assert_type(out.text, str)
assert_type(out.sequences, NDArray[np.int64])
assert_type(out.finish_reasons, list[FinishReason])
assert_type(out.scores, "list[NDArray[np.float32]] | None")
assert_type(out.usage.generated_tokens, int)

gen.generate([1, 2, 3], rsgen.GenerationConfig(max_new_tokens=3))
gen.generate(np.array([[1, 2], [3, 4]]), attention_mask=np.array([[0, 1], [1, 1]]))
gen.sample(["a", [1, 2], np.array([3, 4])], temperature=0.7)
gen.greedy_search(("a", "b"))
assert_type(gen.forward([[1, 2], [3, 4]]), NDArray[np.float32])
assert_type(gen.score("text"), NDArray[np.float32])
assert_type(gen.score(["text"], progress=True), "list[NDArray[np.float32]]")
assert_type(gen.score("text", top_logprobs=3).ranks, NDArray[np.int64])
assert_type(gen.tokenizer.encode("text"), list[int])
assert_type(gen.tokenizer.decode(np.array([1, 2])), str)


def ban(input_ids: NDArray[np.int64], scores: NDArray[np.float32]) -> NDArray[np.float32]:
    scores[:, 7] = -np.inf
    return scores


class Longest:
    def __call__(self, input_ids: NDArray[np.int64], scores: NDArray[np.float32]) -> bool:
        return bool(input_ids.shape[1] > 100)


processor: LogitsProcessor = ban
criterion: StoppingCriterion = Longest()
gen.generate("text", logits_processor=[ban, processor], stopping_criteria=Longest())
gen.generate("text", stopping_criteria=[criterion])


class Prints:
    def put(self, value: NDArray[np.int64]) -> None:
        print(value.shape)

    def end(self) -> None:
        print()


streamer: Streamer = rsgen.TextStreamer(gen, skip_prompt=True, skip_special_tokens=True)
gen.generate("text", streamer=streamer)
gen.beam_search("text", streamer=Prints())


class Phrase(Constraint):
    seqlen = 1

    def advance(self) -> int | None:
        return 5

    def copy(self, stateful: bool = False) -> "Phrase":
        return Phrase()


gen.generate(
    "text", num_beams=4, constraints=[Phrase(), PhrasalConstraint([5, 6]), DisjunctiveConstraint([[7], [8]])]
)
gen.constrained_beam_search("text", constraints=Phrase(), stopping_criteria=[MaxTimeCriteria(1.0), criterion])
gen.beam_search("text", stopping_criteria=StopStringCriteria(gen.tokenizer, "end"), top_logprobs=5)
assert_type(EosTokenCriteria([1, 2])(np.array([[5, 1]])), NDArray[np.bool_])
assert_type(out.top_logprobs, "list[list[dict[int, float]]] | None")
assert_type(out.compute_transition_scores(normalize_logits=True), NDArray[np.float32])
assert_type(out.beam_indices, "NDArray[np.int32] | None")
rsgen.GenerationConfig.from_pretrained("folder", top_p=0.9).validate(strict=True)


def stream() -> Generator[str, None, "rsgen.GenerationOutput | None"]:
    for token in gen.stream("text"):
        assert_type(token, rsgen.StreamedToken)
        yield token.text
    with gen.stream("text", max_time=1.0) as tokens:
        assert_type(next(tokens).finish_reason, "FinishReason | None")
    assert_type(tokens.output, "rsgen.GenerationOutput[None] | None")
    return tokens.output


def relay() -> Generator[rsgen.StreamedToken, None, None]:
    output = yield from gen.stream("text")
    assert_type(output, rsgen.GenerationOutput[None])


@dataclass
class Pet:
    name: str


class Model(BaseModel):
    name: str


assert_type(gen.generate("text", output_type=Pet).parsed, Pet)
assert_type(gen.generate("text", output_type=Model).parsed, Model)
assert_type(gen.beam_search(["text"], output_type=list[Pet]).parsed_all, "list[list[Pet] | rsgen.ParseError]")
assert_type(gen.chat([], output_type=Pet | None).parsed, "Pet | None")
assert_type(gen.sample("text", output_type=Literal["a", "b"]).parsed, Literal["a", "b"])
assert_type(gen.generate("text", output_type=TypeAdapter(list[Model])).parsed, list[Model])
assert_type(gen.stream("text", output_type=Pet), rsgen.TokenStream[Pet])


for row in gen.map([{"prompt": "a"}], output_type=Pet, output="pet", on_error="return", max_new_tokens=5):
    assert_type(row["pet"], Any)
gen.map(["a"], on_error="ignore")  # pyright: ignore[reportArgumentType]


def show(output: rsgen.GenerationOutput) -> None:
    print(output.text)


def named(output: rsgen.GenerationOutput[Pet]) -> str:
    return output.parsed.name


show(gen.generate("text", output_type=Pet))
named(gen.generate("text", output_type=Pet))
named(gen.generate("text", output_type=int))  # pyright: ignore[reportArgumentType]
print(gen.generate("text", output_type=Pet).parsed.age)  # pyright: ignore[reportAttributeAccessIssue]

config = rsgen.GenerationConfig(top_k=5)
assert_type(config.update(seed=1), rsgen.GenerationConfig)
assert_type(config.eos_token_id, "int | list[int] | None")

gen.generate("text", topp=0.9)  # pyright: ignore[reportCallIssue]
gen.generate("text", top_p="0.9")  # pyright: ignore[reportArgumentType]
gen.generate(5)  # pyright: ignore[reportArgumentType]
config.top_k = 6  # pyright: ignore[reportAttributeAccessIssue]
rsgen.GenerationConfig(banana=1)  # pyright: ignore[reportCallIssue]
try:
    gen.generate("text")
except rsgen.RsgenError as error:
    assert_type(error.args[0], object)  # pyright: ignore[reportAssertTypeFailure]
