"""What comes out of the pickle of a generator opens its model at the first use, in whatever process that is."""

import concurrent.futures
import multiprocessing
import pickle
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
import rsgen

ROOT = Path(__file__).parents[1]
STORY_ADAPTER = ROOT / "tests/golden/adapters/story"
PROMPT = "Once upon a time"
METHODS = [method for method in ("spawn", "forkserver") if method in multiprocessing.get_all_start_methods()]

_kept: rsgen.Generator | None = None


def is_open(gen: rsgen.Generator) -> bool:
    return "not opened yet" not in repr(gen) and not gen.closed


def keep(gen: rsgen.Generator) -> None:
    """The initializer of a pool."""
    global _kept
    _kept = gen


def kept_text(prompt: str) -> tuple[bool, str, bool]:
    """In a worker: whether the model was open, the text, and whether it is open then."""
    assert _kept is not None
    before = is_open(_kept)
    return before, _kept.generate(prompt, max_new_tokens=6).text, is_open(_kept)


def given_text(gen: rsgen.Generator, prompt: str) -> tuple[bool, str]:
    return is_open(gen), gen.generate(prompt, max_new_tokens=6).text


def untouched(gen: rsgen.Generator) -> tuple[bool, str, int]:
    """What a worker knows of a generator that it does not use, and the memory that it takes, in MB."""
    resident = 0
    if sys.platform == "linux":
        resident = int(Path("/proc/self/status").read_text().split("VmRSS:")[1].split()[0]) // 1024
    return is_open(gen), gen.name_or_path, resident


@pytest.mark.parametrize("method", METHODS)
def test_a_pool_opens_the_model_in_a_worker_at_its_first_use(gen, method):
    context = multiprocessing.get_context(method)
    with concurrent.futures.ProcessPoolExecutor(
        1, mp_context=context, initializer=keep, initargs=(gen,)
    ) as pool:
        text = gen.generate(PROMPT, max_new_tokens=6).text
        assert pool.submit(kept_text, PROMPT).result(120) == (False, text, True)
        assert pool.submit(kept_text, PROMPT).result(120) == (True, text, True)
        assert pool.submit(given_text, gen, PROMPT).result(120) == (False, text)
        assert pool.submit(untouched, gen).result(120)[:2] == (False, gen.name_or_path)


@pytest.mark.parametrize("method", METHODS)
def test_a_process_that_uses_nothing_reads_no_model(make_llama, method):
    folder = make_llama(hidden_size=1024, intermediate_size=4096, num_hidden_layers=4, vocab_size=8192)
    large = rsgen.Generator(folder, num_threads=1)
    context = multiprocessing.get_context(method)
    with concurrent.futures.ProcessPoolExecutor(1, mp_context=context) as pool:
        opened, name, resident = pool.submit(untouched, large).result(120)
        assert (opened, name) == (False, str(folder))
        if sys.platform == "linux":
            assert resident < 200, f"{resident} MB; the weights alone are 290 MB"
        large.close()
        assert pool.submit(untouched, large).result(120)[0] is False


def test_multiprocessing_sends_generators_too(gen):
    context = multiprocessing.get_context(METHODS[0])
    with context.Pool(1) as pool:
        expected = gen.generate(PROMPT, max_new_tokens=6).text
        assert pool.starmap(given_text, [(gen, PROMPT)] * 2) == [(False, expected)] * 2


def test_looking_at_it_does_not_open_it(gen):
    again = pickle.loads(pickle.dumps(gen))
    assert again.name_or_path == gen.name_or_path
    assert not again.closed
    assert "not opened yet" in repr(again)
    assert pickle.dumps(again) == pickle.dumps(gen)
    assert not is_open(again)
    assert again.num_threads == gen.num_threads
    assert repr(again) == repr(gen)


def test_every_use_opens_it(gen):
    uses = {
        "generate": lambda own: own.generate(PROMPT, max_new_tokens=1),
        "stream": lambda own: next(own.stream(PROMPT, max_new_tokens=1)),
        "score": lambda own: own.score(PROMPT),
        "tokenizer": lambda own: own.tokenizer.encode(PROMPT),
        "config": lambda own: own.config,
        "with": lambda own: own.__enter__(),
        "stats": lambda own: own.stats(),
        "map": lambda own: list(own.map([PROMPT], max_new_tokens=1)),
        "load_adapter": lambda own: own.load_adapter(STORY_ADAPTER, name="a"),
        "submit": lambda own: own.submit(PROMPT, max_new_tokens=1).result(60),
    }
    data = pickle.dumps(gen)
    for name, use in uses.items():
        again = pickle.loads(data)
        assert not is_open(again)
        use(again)
        assert is_open(again), name


def test_a_closed_one_stays_closed_and_its_pickle_is_open_to_use(gen):
    again = pickle.loads(pickle.dumps(gen))
    again.close()
    assert again.closed
    assert "closed" in repr(again)
    with pytest.raises(rsgen.InputError, match="the Generator is closed"):
        again.generate(PROMPT, max_new_tokens=1)
    once_more = pickle.loads(pickle.dumps(again))
    assert not once_more.closed
    assert once_more.generate(PROMPT, max_new_tokens=2).text
    with pickle.loads(pickle.dumps(gen)) as own:
        assert own.generate(PROMPT, max_new_tokens=1).text
    assert own.closed


def test_threads_open_it_once(gen, make_llama):
    folder = make_llama(hidden_size=256, num_hidden_layers=4)
    expected = rsgen.Generator(folder, num_threads=1).forward([1, 2, 3])
    again = pickle.loads(pickle.dumps(rsgen.Generator(folder, num_threads=1)))
    found: list[object] = []
    barrier = threading.Barrier(8)

    def use() -> None:
        barrier.wait()
        try:
            found.append(again.forward([1, 2, 3]))
        except BaseException as error:
            found.append(error)

    threads = [threading.Thread(target=use) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 8
    for one in found:
        np.testing.assert_array_equal(one, expected)


def test_closing_while_it_opens_ends_in_one_state(make_llama):
    folder = make_llama(hidden_size=512, num_hidden_layers=4, vocab_size=4096)
    data = pickle.dumps(rsgen.Generator(folder, num_threads=1))
    for _ in range(5):
        again = pickle.loads(data)
        errors: list[BaseException] = []

        def use(own: rsgen.Generator = again, errors: list[BaseException] = errors) -> None:
            try:
                own.forward([1, 2, 3])
            except rsgen.RsgenError as raised:
                errors.append(raised)

        thread = threading.Thread(target=use)
        thread.start()
        again.close()
        thread.join()
        assert again.closed
        assert all("closed" in str(error) for error in errors)


def test_adapters_beside_the_model_come_along(monkeypatch, tmp_path):
    gen = rsgen.Generator(num_threads=1)
    monkeypatch.chdir(STORY_ADAPTER.parent)
    gen.load_adapter("story", name="a")
    gen.load_adapter(STORY_ADAPTER, name="b", cache_dir=tmp_path)
    gen.unload_adapter("b")
    gen.load_adapter(STORY_ADAPTER, name="c")
    data = pickle.dumps(gen)
    assert len(data) < 1000
    monkeypatch.chdir(tmp_path)
    again = pickle.loads(data)
    assert not is_open(again)
    assert pickle.dumps(again) == data
    expected = gen.score(PROMPT, adapter=[("a", 0.5), ("c", 0.25)])
    np.testing.assert_array_equal(again.score(PROMPT, adapter=[("a", 0.5), ("c", 0.25)]), expected)
    assert again.adapters == gen.adapters
    again.unload_adapter("a")
    assert list(pickle.loads(pickle.dumps(again)).adapters) == ["c"]


def test_an_assistant_comes_along():
    draft = rsgen.Generator(ROOT / "python/rsgen/models/story-draft", num_threads=1)
    gen = rsgen.Generator(num_threads=1, assistant=draft)
    again = pickle.loads(pickle.dumps(gen))
    assert not is_open(again)
    assert again.generate(PROMPT, max_new_tokens=8).text == gen.generate(PROMPT, max_new_tokens=8).text
    assert again.assistant is not None
