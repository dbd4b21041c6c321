"""The memory that a request or a folder sizes, in processes of their own with a limit or a look at their peak."""

import json
import os
import subprocess
import sys
import textwrap

import pytest
import rsgen
from hostile import INDEX, JSON_FILES, Folder
from stopwatch import not_longer

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="limits and peaks are read as Linux has them")

PEAK = """
    def peak():
        status = open("/proc/self/status").read()
        return int(status.split("VmHWM:")[1].split()[0]) / 1024
"""


def run(source: str, *arguments: object) -> dict:
    """Runs Python and returns the object that it prints last, as JSON."""
    code = textwrap.dedent(PEAK) + textwrap.dedent(source)
    process = subprocess.run(
        [sys.executable, "-c", code, *map(str, arguments)], capture_output=True, text=True, timeout=60
    )
    assert process.returncode == 0, process.stderr[-2000:]
    return json.loads(process.stdout.splitlines()[-1])


@pytest.mark.parametrize(
    "fields",
    [
        {"output_scores": True},
        {"output_logits": True, "output_scores": True},
        {"top_logprobs": 2048},
        {"output_scores": True, "num_beams": 1000, "do_sample": False},
        {"output_scores": True, "rows": 1000},
    ],
    ids=json.dumps,
)
def test_scores_beyond_the_limit_of_the_process_are_refused_before_they_are_made(fields):
    result = run(
        """
        import json, resource, sys, time
        import rsgen
        gen = rsgen.Generator(num_threads=1)
        resource.setrlimit(resource.RLIMIT_AS, (3 << 30, 3 << 30))
        fields = {"do_sample": True, "seed": 1, "max_new_tokens": 500, "min_new_tokens": 500, **json.loads(sys.argv[1])}
        rows = fields.pop("rows", 1)
        if rows == 1 and "num_beams" not in fields:
            fields["num_return_sequences"] = 1000
        started = time.monotonic()
        try:
            gen.generate([[5, 6]] * rows, **fields)
        except rsgen.CapacityError as error:
            message = str(error)
        seconds = time.monotonic() - started
        again = gen.generate([5, 6], max_new_tokens=3).usage.generated_tokens
        print(json.dumps({"message": message, "seconds": seconds, "again": again}))
        """,
        json.dumps(fields),
    )
    message = result["message"]
    assert "rows of up to 500 new tokens may take" in message
    assert "are available (the limit of the address space" in message
    assert "lower `max_new_tokens`" in message
    not_longer(result["seconds"], 5)
    assert result["again"] == 3


@pytest.mark.parametrize("way", ["list", "rows", "forward"])
def test_scores_are_held_once(way):
    result = run(
        """
        import json, sys
        import numpy, rsgen
        # The second call takes the blocks of the first one, so that the cache grows no more.
        gen = rsgen.Generator(num_threads=1, prefix_caching=False)
        rows, tokens = 33, 48
        fields = {"max_new_tokens": tokens, "min_new_tokens": tokens}
        def call(**more):
            if sys.argv[1] == "list":
                return gen.generate([[5, 6]] * rows, **fields, **more)
            return gen.generate([5, 6], do_sample=True, num_return_sequences=rows, seed=1, **fields, **more)
        if sys.argv[1] == "forward":
            gen.forward([[5, 6]])
            gen.generate([[5] * 500], max_new_tokens=12)
            before = peak()
            size = gen.forward([[5] * 512]).nbytes
        else:
            call()
            before = peak()
            output = call(output_scores=True)
            size = sum(step.nbytes for step in output.scores)
        print(json.dumps({"more": peak() - before, "size": size / 2**20}))
        """,
        way,
    )
    assert result["size"] >= 4
    # The numbers themselves, and a step of all rows or the pass besides.
    assert result["more"] < 1.25 * result["size"] + 1.5


EMPTIES = ["[],", "[[]],", '{"a":0},', '"",']


@pytest.mark.parametrize("name", [*JSON_FILES, INDEX])
def test_a_file_of_empties_takes_neither_memory_nor_time(name, tmp_path):
    folder = Folder(tmp_path)
    folder.tokenizer()
    if name == "special_tokens_map.json":
        folder.write("tokenizer_config.json", "{}")
    if name.startswith("model"):
        os.remove(tmp_path / "model.safetensors")
    paths = []
    for index, empty in enumerate(EMPTIES):
        whole = tmp_path / str(index)
        whole.write_text('{"a":[' + empty * ((15 << 20) // len(empty)) + "0]}")
        paths.append(str(whole))
    result = run(
        """
        import json, os, sys, time
        import rsgen
        rsgen.Generator(num_threads=1)
        folder, name, *files = sys.argv[1:]
        before, all = peak(), []
        for file in files:
            os.replace(file, os.path.join(folder, name))
            started = time.process_time()
            try:
                rsgen.Generator(folder, num_threads=1)
                message = "loaded"
            except rsgen.LoadError as error:
                message = str(error)
            all.append([message, time.process_time() - started, peak() - before])
        print(json.dumps(all))
        """,
        tmp_path,
        name,
        *paths,
    )
    for message, seconds, peak in result:
        assert name in message, message
        assert peak < 256
        not_longer(seconds, 1)


def test_a_path_that_is_not_utf8_is_refused_in_words(tmp_path):
    with pytest.raises(rsgen.LoadError, match=r"must be UTF-8, got .*\\udcff.*; rename the folder"):
        rsgen.Generator(os.fsdecode(b"models/\xff"))
    with pytest.raises(rsgen.LoadError, match="must be UTF-8"):
        rsgen.Generator(tmp_path / os.fsdecode(b"\xff"))
    with pytest.raises(rsgen.LoadError, match="must be UTF-8"):
        rsgen.Tokenizer(os.fsdecode(b"\xff"))


EVIL = "\u202e\x1b]0;title\x07\u2066\u200b\n\u2028" + "x" * 5000


@pytest.mark.parametrize(
    "edit",
    [
        lambda folder: folder.json("config.json", {"architectures": [EVIL]}),
        lambda folder: folder.json(
            "config.json", {EVIL: 1, "architectures": ["LlamaForCausalLM"], "model_type": EVIL}
        ),
        lambda folder: folder.header(lambda header: header.update({EVIL: {"dtype": EVIL}})),
        lambda folder: folder.header(lambda header: header.update({EVIL: 3})),
        lambda folder: folder.index(lambda names: names.update({EVIL: "a.safetensors"})),
        lambda folder: folder.index(lambda names: names.update({"model.norm.weight": EVIL})),
        lambda folder: folder.write("config.json", '{"%s": 1, "%s": 2}' % (("x" * 5000 + "\u202e",) * 2)),
        lambda folder: folder.json("generation_config.json", {"top_k": EVIL}),
        lambda folder: folder.json(
            "config.json", {"architectures": ["LlamaForCausalLM"], "rope_scaling": {"rope_type": EVIL}}
        ),
        lambda folder: folder.tokenizer(lambda tokenizer: tokenizer.update(normalizer={"type": EVIL})),
        lambda folder: folder.write(
            "tokenizer_config.json", json.dumps({"added_tokens_decoder": {EVIL: "a"}})
        ),
    ],
)
def test_no_name_of_a_folder_is_shown_as_it_is(edit, tmp_path):
    folder = Folder(tmp_path)
    folder.tokenizer()
    edit(folder)
    with pytest.raises(rsgen.LoadError) as raised:
        rsgen.Generator(tmp_path)
    message = str(raised.value)
    assert len(message) <= 1000
    assert message.isprintable(), message


def test_a_long_value_of_every_field_ends_in_an_answer_or_a_refusal():
    """Lists and texts are weighed before they are copied: no field aborts a process with little memory."""
    result = run(
        """
        import json, sys, warnings
        sys.path.insert(0, sys.argv[1])
        import rsgen
        from attack.sizes import limit_memory, sized
        warnings.simplefilter("ignore")
        gen, ends = rsgen.Generator(num_threads=1), {}
        gen.generate([5, 6], max_new_tokens=1)
        limit_memory(24 << 20)
        for name, makers in sized().items():
            for make in makers:
                beams = {"num_beams": 2} if name == "force_words_ids" else {}
                try:
                    value = make(1 << (12 if "prompt" in name or name == "json_schema" else 16))
                    gen.generate([5, 6], max_new_tokens=1, **{name: value}, **beams)
                    end = "answer"
                except (rsgen.RsgenError, MemoryError, TypeError) as error:
                    end = type(error).__name__
                ends.setdefault(name, []).append(end)
                print(name, end, file=sys.stderr, flush=True)
                value = None
        assert gen.generate([5, 6], max_new_tokens=3).usage.generated_tokens == 3
        print(json.dumps(ends))
        """,
        os.path.dirname(__file__),
    )
    assert result.keys() >= {
        "bad_words_ids",
        "sequence_bias",
        "suppress_tokens",
        "stop_strings",
        "json_schema",
    }
    assert all(
        "CapacityError" in result[name] for name in ("bad_words_ids", "force_words_ids", "sequence_bias")
    )


LISTS = {
    "fields": "gen.generate('a', max_new_tokens=1, suppress_tokens=[5] * 9_000_000)",
    "prompts": "gen.generate(['ab'] * 3_000_000, max_new_tokens=1)",
    "configurations": "rsgen.GenerationConfig(eos_token_id=[5] * 9_000_000)",
    "processors": "rsgen.processors.SuppressTokensLogitsProcessor([5] * 9_000_000)",
    "criteria": "rsgen.stopping_criteria.EosTokenCriteria([5] * 9_000_000)",
}


@pytest.mark.parametrize("name", LISTS)
def test_a_list_that_is_larger_than_the_memory_is_refused_at_once(name):
    """Nothing is reserved for its items before they are weighed."""
    result = run(
        f"""
        import json, sys
        sys.path.insert(0, sys.argv[1])
        import rsgen
        from attack.sizes import limit_memory
        gen = rsgen.Generator(num_threads=1)
        gen.generate([5, 6], max_new_tokens=1)
        limit_memory(150 << 20)
        try:
            {LISTS[name]}
        except rsgen.CapacityError as error:
            print(json.dumps(str(error)))
        """,
        os.path.dirname(__file__),
    )
    assert "give less in a call" in result


def test_damaged_pickles_of_results_take_bounded_memory():
    result = run(
        """
        import io, json, pickle, random
        import rsgen
        gen = rsgen.Generator(num_threads=1)
        fields = {"seed": 1, "max_new_tokens": 4, "num_return_sequences": 2}
        output = gen.sample(["One day", "Tom"], output_events=True, output_scores=True, **fields)
        stream = gen.stream("One day", max_new_tokens=3)
        values = [output, *stream, stream.output, output.usage, output.timings, gen.stats(), gen.generation_config]
        whole = [pickle.dumps(value, protocol) for value in values for protocol in (2, 4, 5)]
        rng, ends = random.Random(5), []
        before = peak()
        for _ in range(1500):
            damaged = bytearray(rng.choice(whole))
            for _ in range(rng.choice([1, 1, 2, 5])):
                damaged[rng.randrange(len(damaged))] = rng.randrange(256)
            try:
                # The reader in Python: that in C makes room for as many objects as a damaged number says.
                repr(pickle._Unpickler(io.BytesIO(damaged)).load())
                ends.append("")
            except Exception as error:
                ends.append(type(error).__name__)
        print(json.dumps({"more": peak() - before, "ends": sorted({*ends})}))
        """
    )
    assert {"", "InputError"} <= {*result["ends"]}
    assert "InternalError" not in result["ends"]
    assert result["more"] < 64, result


@pytest.mark.parametrize("fields", [{"grammar": 1}, {"regex": 1}, {"stop_strings": 4}], ids=str)
def test_long_texts_of_fields_are_weighed_with_their_copies(fields):
    [(name, count)] = fields.items()
    result = run(
        """
        import json, pathlib, resource, sys
        import rsgen
        gen = rsgen.Generator(num_threads=1)
        texts = [letter * (16 << 20) for letter in "abcd"[:int(sys.argv[2])]]
        value = texts if len(texts) > 1 else texts[0]
        pages = int(pathlib.Path("/proc/self/statm").read_text().split()[0])
        limit = pages * resource.getpagesize() + (64 << 20)
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
        try:
            gen.generate([5, 6], max_new_tokens=1, **{sys.argv[1]: value})
        except rsgen.CapacityError as error:
            message = str(error)
        again = gen.generate([5, 6], max_new_tokens=3).usage.generated_tokens
        print(json.dumps({"message": message, "again": again}))
        """,
        name,
        count,
    )
    assert f"the texts of an argument may take {16 * (16 << 20)} bytes of memory" in result["message"]
    assert "give less in a call" in result["message"]
    assert result["again"] == 3
