"""The peer benchmark's own arithmetic and tables, with workers that compute nothing."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from xml.etree import ElementTree

import numpy as np
import pytest

BENCH = Path(__file__).resolve().parent.parent / "benches" / "peers"
sys.path += [str(BENCH), str(BENCH / "workers")]
import curves  # noqa: E402
import environments  # noqa: E402
import llama_cpp_worker  # noqa: E402
import run  # noqa: E402
import turns  # noqa: E402
from peers import PEERS, PRECISIONS, Peer  # noqa: E402
from picture import draw  # noqa: E402
from report import APART, TASK_COLUMNS, table, task_rows  # noqa: E402
from shapes import SHAPES, successor  # noqa: E402
from tasks import LOOKUPS, NAMED, PERIOD, REPEATING, SERVING, SOURCES, TASKS  # noqa: E402
from turns import Measured, Worker, measure  # noqa: E402
from worker import answer, by_clients, common_length  # noqa: E402

# The weights of the published models, in millions.
MILLIONS = {
    "S": 135,
    "T": 1100,
    "G": 124,
    "E": 1000,
    "X": 913,
    "R": 1100,
    "L": 4223,
    "M": 74,
    "N": 615,
    "F": 248,
    "B": 406,
}

# Loads for 0.05 s, then answers at once; with `fails` it cannot load.
WORKER = f"""
import sys, time
sys.path.append({str(BENCH / "workers")!r})
from worker import main

def load(folder, threads, mode):
    assert mode != "fails"
    time.sleep(0.05)
    return lambda prompts, new_tokens, num_beams: [[7] * new_tokens for _ in prompts]

main(load, [])
"""
READER = "print('{\"load_seconds\": 0}')\nwhile True: input(); print('{\"seconds\": 0.5}')"


@pytest.fixture
def reader(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Worker:
    """A plain read that takes no time, and turns without rests."""
    (tmp_path / "logs").mkdir()
    monkeypatch.setattr(turns, "WORK", tmp_path)
    monkeypatch.setattr(turns, "REST", 0)
    reader = Worker("read", [sys.executable, "-u", "-c", READER])
    reader.start()
    yield reader
    reader.stop()


def worker(mode: str) -> Worker:
    """A process of `WORKER`."""
    return Worker(mode, [sys.executable, "-c", WORKER, "serve", "folder", "1", mode])


def test_the_first_token_counts_loading(reader: Worker) -> None:
    """Also, what cannot be loaded is missing from all that follows."""
    works, fails = worker("works"), worker("fails")
    measured = measure("first_token", [works, fails], reader, rounds=1)
    assert measured["works"].seconds[0] >= works.loads[0] >= 0.05
    assert measured["works"].reads == [0.5]
    assert works.process is None
    assert measured["fails"].missing == fails.missing == "AssertionError"


@pytest.mark.skipif(not turns.CAN_EVICT, reason="the system cannot take a file out of the page cache")
def test_a_cold_file_is_read_from_the_disk(tmp_path: Path) -> None:
    """Of a folder too; what is evicted is not lost."""
    folder = tmp_path / "model"
    (folder / "parts").mkdir(parents=True)
    for file in (folder / "a.safetensors", folder / "parts" / "b.safetensors"):
        file.write_bytes(b"weights" * 10_000)
    turns.evict(folder)
    turns.evict(folder / "a.safetensors")
    assert (folder / "parts" / "b.safetensors").read_bytes() == b"weights" * 10_000
    assert TASKS["first_token_cold"].cold


def test_a_token_is_timed_without_its_prompt() -> None:
    """64 tokens are timed beyond the first: by two calls, or behind a long prompt by a worker that says when the first came."""
    asked: list[tuple[list[int], int]] = []

    def call(prompts: list[list[int]], new_tokens: int, num_beams: int, since_first: int = 0) -> float:
        asked.append((list(map(len, prompts)), new_tokens))
        return 0.5 * (new_tokens - 1) if since_first else 1.0 + 0.5 * new_tokens

    for name in ("decode_b1", "decode_2k"):
        task = TASKS[name]
        assert task.seconds(call, turns.random_prompts(task, "")) == pytest.approx(0.5)
    assert asked == [([32], 1), ([32], 65), ([2048], 65)]


def test_bits_that_are_apart_have_a_star() -> None:
    """Up to 5 % is the same precision."""
    measured = {name: Measured([1.0], [1.0]) for name in ("rsgen int4", "near", "apart")}
    bits = {"rsgen int4": 4.5, "near": 4.7, "apart": 4.75}
    rows = task_rows("S", "decode_b1", TASKS["decode_b1"], measured, bits, {"near", "apart"})
    lines = table("decode_b1", TASK_COLUMNS, rows).splitlines()
    assert [star for star in ("4.50*", "4.70*", "4.75*") if any(star in line for line in lines)] == ["4.75*"]
    assert lines[-1] == APART
    assert APART not in table("decode_b1", TASK_COLUMNS, rows[:2])


def test_every_task_has_a_peer_in_every_precision() -> None:
    """The name tells peers apart, in logs too."""
    names = [peer.name for peer in PEERS]
    assert len(set(names)) == len(names)
    for precision in PRECISIONS:
        of_precision = [peer for peer in PEERS if peer.precision == precision]
        for library in ("llama.cpp", "OpenVINO"):
            tasks = [peer.tasks for peer in of_precision if peer.name.startswith(library)]
            assert {task for named in tasks for task in named} == set(TASKS) - set(SOURCES), (
                precision,
                library,
            )
    for precision in ("bfloat16", "int8"):
        translators = [peer for peer in PEERS if peer.precision == precision and "CTranslate2" in peer.name]
        assert {task for peer in translators for task in peer.tasks} == set(TASKS) - set(LOOKUPS), precision


@pytest.mark.parametrize("name", SHAPES)
def test_a_shape_has_the_tasks_of_its_kind_that_its_positions_do_for(name: str) -> None:
    """Sources are for models with an encoder; the tensors have the shapes that config.json says."""
    shape = SHAPES[name]
    fitting = {task for task in TASKS if shape.fits(TASKS[task])}
    assert fitting, name
    assert fitting <= set(SOURCES) if shape.has_encoder else fitting.isdisjoint(SOURCES)
    assert fitting >= set(LOOKUPS) if shape.is_known else fitting.isdisjoint(LOOKUPS)
    assert round(shape.num_weights() / 1e6) == MILLIONS[name]


def test_clients_send_their_prompts_one_by_one() -> None:
    """Each client has a part of the prompts, and answers come in the order of the prompts."""
    calls: list[list[list[int]]] = []

    def generate(prompts: list[list[int]], new_tokens: int, num_beams: int) -> list[list[int]]:
        calls.append(prompts)
        return [[prompt[0]] * new_tokens for prompt in prompts]

    by_three = by_clients(generate)
    prompts = [[number] for number in range(8)]
    assert by_three(prompts, 2, 4, clients=3) == [[number, number] for number in range(8)]
    assert sorted(call[0][0] for call in calls) == list(range(8))
    assert all(len(call) == 1 for call in calls)
    calls.clear()
    assert by_three(prompts, 1, 4) == prompts
    assert calls == [prompts]


def test_requests_share_their_beginning_and_no_more() -> None:
    """It is another one in each call; one prompt shares nothing, and equal ones keep a token each."""
    task = TASKS["serve4_1k"]
    draw_prompts = turns.random_prompts(task, "seed")
    first, second = draw_prompts(), draw_prompts()
    assert [len(prompt) for prompt in first] == [1000 + length for length in task.prompt_lens()]
    assert common_length(first) == 1000
    assert first[0][:1000] == first[3][:1000] != second[0][:1000]
    assert common_length(turns.random_prompts(TASKS["serve16"], "seed")()) == 0
    assert common_length(first[:1]) == 0
    assert common_length([[1, 2, 3], [1, 2, 3]]) == 2
    assert task.context() <= SHAPES["T"].context


def test_a_known_text_repeats_itself_or_misleads_whoever_looks_it_up() -> None:
    """Every token follows one other; of a text that misleads, each that is written is in the prompt before a wrong one."""
    assert {successor(token) for token in range(NAMED)} == set(range(NAMED))
    start = token = REPEATING - 7
    for _ in range(PERIOD):
        token = successor(token)
    assert token == start
    assert all(max(prompt) < REPEATING for prompt in turns.random_prompts(TASKS["lookup_b8"], "seed")())
    for prompt in turns.random_prompts(TASKS["lookup_wrong_b8"], "seed")():
        token = prompt[-1]
        for _ in range(TASKS["lookup_wrong_b8"].new_tokens):
            token = successor(token)
            place = prompt.index(token)
            assert prompt[place + 1] != successor(token)


def test_llama_cpp_keeps_the_candidates_that_are_right(monkeypatch: pytest.MonkeyPatch) -> None:
    """It writes what it writes without them, in fewer batches, and forgets the wrong ones."""
    context = object.__new__(llama_cpp_worker.Context)
    cached: list[int] = []
    batches = 0

    def forward(parts: list[llama_cpp_worker.Part]) -> np.ndarray:
        nonlocal batches
        batches += 1
        [part] = parts
        assert part.position == len(cached)
        cached.extend(part.tokens)
        wanted = part.tokens if part.all_logits else part.tokens[-1:]
        return np.eye(5)[[(token + 1) % 5 for token in wanted]]

    def remove(_: int, start: int) -> None:
        del cached[start:]

    class Lookup:
        """Of three candidates the last one is wrong."""

        def __init__(self, max_ngram_size: int, num_pred_tokens: int) -> None:
            assert (max_ngram_size, num_pred_tokens) == (2, 3)

        def __call__(self, text: np.ndarray) -> np.ndarray:
            return (text[-1] + np.array([1, 2, 4])) % 5

    monkeypatch.setattr(context, "forward", forward)
    monkeypatch.setattr(context, "remove", remove)
    monkeypatch.setitem(
        sys.modules, "llama_cpp.llama_speculative", SimpleNamespace(LlamaPromptLookupDecoding=Lookup)
    )
    monkeypatch.setitem(sys.modules, "llama_cpp", SimpleNamespace())
    assert llama_cpp_worker.prompt_lookup(context, [3, 4], 7, 3) == [0, 1, 2, 3, 4, 0, 1]
    assert batches == 3
    assert len(cached) == 8


def test_long_prompts_are_computed_in_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch has room for so many tokens; only the last one has logits."""
    context = object.__new__(llama_cpp_worker.Context)
    batches: list[list[llama_cpp_worker.Part]] = []
    monkeypatch.setattr(context, "forward", lambda parts: batches.append(parts) or len(batches))
    rows = [list(range(1500)), list(range(1500, 3000))]
    assert context.extend(rows, 10) == 2
    assert all(sum(len(part.tokens) for part in batch) <= llama_cpp_worker.BATCH for batch in batches)
    for sequence, row in enumerate(rows):
        parts = [batch[sequence] for batch in batches]
        assert [token for part in parts for token in part.tokens] == row
        assert [(part.sequence, part.position) for part in parts] == [(sequence, 10), (sequence, 1034)]
        assert [part.logits for part in parts] == [False, True]


def test_rsgen_runs_on_the_files_of_llama_cpp(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One worker for each quantized file; none where llama.cpp is missing."""
    monkeypatch.setattr(Peer, "model", lambda peer, checkpoint: checkpoint / str(peer.weights))
    monkeypatch.setattr(Peer, "weight_bytes", lambda peer, checkpoint: 8)
    peers = [Worker(peer.name) for peer in PEERS if peer.precision == "int4"]
    workers = run.same_file_workers("rsgen", tmp_path, peers, 2)
    assert [worker.name for worker in workers] == ["rsgen, the file Q4_0", "rsgen, the file Q4_K_M"]
    assert workers[1].command == ["rsgen", "serve", str(tmp_path / "q4_k_m/model.gguf"), "2", "file"]
    assert workers[1].weight_bytes == 8
    for worker in peers:
        worker.missing = "no compiler"
    assert run.same_file_workers("rsgen", tmp_path, peers, 2) == []


def test_the_picture_has_a_column_for_each_precision() -> None:
    """Each task of a shape and precision is a group of bars."""
    row = {"name": "rsgen", "figure": 10.0, "unit": "tok/s", "score": 1.5}
    tasks = {"tasks": {"decode_b1": [row, {"name": "peer", "missing": "why"}]}}
    root = ElementTree.fromstring(draw({"shapes": {"S": {"int8": tasks, "int4": tasks}}}))
    texts = [element.text for element in root.iter() if element.text]
    assert {"decode_b1 on S in int8", "decode_b1 on S in int4"} <= set(texts)


def test_a_worker_counts_from_the_first_new_token_on() -> None:
    """If it is asked to; one that cannot tell when it came says so."""

    def generate(
        prompts: list[list[int]], new_tokens: int, num_beams: int, on_first: Callable[[float], None]
    ) -> list[list[int]]:
        time.sleep(0.2)
        on_first(time.perf_counter())
        time.sleep(0.01)
        return [[0] * new_tokens for _ in prompts]

    request = {"prompts": [[1]], "new_tokens": 3, "num_beams": 1, "since_first": 1}
    told = answer(generate, request)
    assert told["tokens"] == [[0] * 3]
    assert 0.01 <= told["seconds"] < 0.2
    assert "error" in answer(lambda prompts: prompts, {"prompts": [[1]], "since_first": 1})


@pytest.mark.parametrize("name", [name for name in TASKS if name not in LOOKUPS])
def test_prompts_that_are_asked_for_twice_are_of_the_vocabulary(name: str) -> None:
    """Also those of 16,384 tokens."""
    asked: list[list[list[int]]] = []

    class Recorder(Worker):
        def running(self) -> nullcontext[bool]:
            return nullcontext(True)

        def generate(self, prompts: list[list[int]], *_: object, **options: int) -> float:
            asked.append(prompts)
            return 0.0

    assert turns.repeats(TASKS[name], Recorder("recorder"))
    assert asked[0] == asked[1]
    assert 0 <= min(map(min, asked[0])) <= max(map(max, asked[0])) < 32000


def test_the_curves_of_the_documentation_go_through_what_was_kept_of_a_run() -> None:
    """`python benches/peers/curves.py benches/peers/growth.json docs/growth.svg` draws them."""
    tasks = json.loads((BENCH / "growth.json").read_text())["shapes"]["S"]["bfloat16"]["tasks"]
    assert (BENCH.parents[1] / "docs" / "growth.svg").read_text() == curves.draw(tasks)


def test_a_library_is_one_line_however_it_is_measured() -> None:
    """No way of a peer is a name that curves do not know."""
    names = {curves.without_way(peer.name) for peer in PEERS if set(peer.tasks) & set(SERVING)}
    names |= {curves.without_way(peer.name) for peer in PEERS if "decode_8k" in peer.tasks}
    assert {name for name in names if name.startswith(("llama.cpp", "OpenVINO"))} == {
        *(f"llama.cpp {weights}" for weights in ("bf16", "Q8_0", "Q4_0", "Q4_K_M")),
        *(f"OpenVINO {weights}" for weights in ("bf16", "int8", "int4")),
    }


def test_a_peer_that_cannot_be_kept_to_an_instruction_set_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its figures would be those of another one. The others are told by variables, or compiled for it."""
    monkeypatch.setattr(environments.os, "environ", {})
    environments.keep_to("avx2")
    assert environments.os.environ["RSGEN_ISA"] == "avx2"
    for name in ("mistralrs", "ik_llama_cpp"):
        with pytest.raises(environments.Missing, match="it cannot be kept to avx2"):
            environments.Environment(name, ()).python()


def test_curves_go_through_what_was_measured() -> None:
    """A point for the fastest way of each library, in the order of the axis; a chart of one point is left out."""

    def row(name: str, figure: float) -> dict[str, object]:
        return {"name": name, "figure": figure, "unit": "tok/s"}

    lost = {"name": "peer", "missing": "why"}
    tasks = {
        "decode_8k": [row("rsgen", 50.0), lost],
        "decode_512": [row("rsgen", 100.0), row("peer", 80.0)],
        "decode_b8": [row("rsgen", 800.0)],
        "serve1_1k": [row("rsgen", 60.0), row("rsgen calls", 70.0)],
    }
    context, requests = (curves.lines_of(tasks, curve) for curve in curves.CURVES)
    assert context == {"rsgen": [(512, 100.0), (8192, 50.0)], "peer": [(512, 80.0)]}
    assert requests == {"rsgen": [(1, 70.0)]}
    root = ElementTree.fromstring(curves.draw(tasks))
    texts = [element.text for element in root.iter() if element.text]
    assert {"tokens of context", "512", "8k", "rsgen", "peer"} <= set(texts)
    assert "requests at once" not in texts
    (line,) = (element for element in root.iter() if element.attrib.get("points", "").count(",") == 2)
    (left, high), (right, low) = (map(float, point.split(",")) for point in line.attrib["points"].split())
    assert left < right
    assert high < low, "downwards: slower"
