"""Events, traces and pictures: what a call with ``output_events=True`` tells."""

import json
import pickle
import typing
from html.parser import HTMLParser

import pytest
import rsgen
from rsgen import types

PROMPT = "One day, a little girl"
SEARCHES = {
    "greedy_search": {},
    "sample": {"do_sample": True, "seed": 5, "top_k": 3},
    "contrastive_search": {"penalty_alpha": 0.6, "top_k": 4},
    "dola": {"dola_layers": "low"},
    "prompt_lookup": {"prompt_lookup_num_tokens": 3},
    "beam_search": {"num_beams": 3, "num_return_sequences": 2},
    "beam_sample": {"num_beams": 2, "do_sample": True, "seed": 5},
    "group_beam_search": {"num_beams": 4, "num_beam_groups": 2, "diversity_penalty": 1.0},
}


@pytest.fixture(scope="module")
def gen():
    return rsgen.Generator()


def of_type(events, kind):
    return [event for event in events if event["type"] == kind]


@pytest.mark.parametrize("name", SEARCHES)
def test_events_tell_what_the_output_says(gen, name):
    fields = {"max_new_tokens": 8, **SEARCHES[name]}
    out = gen.generate(PROMPT, output_events=True, **fields)
    assert out == gen.generate(PROMPT, **fields), "they change nothing"
    events = out.events
    assert [event["seq"] for event in events] == list(range(len(events)))
    times = [event["t_us"] for event in events]
    assert times == sorted(times)
    assert [event["type"] for event in events[:2]] == ["start", "prompt"]
    start, prompt, finish = events[0], events[1], events[-1]
    assert start["strategy"] == name
    assert start["parameters"]["max_new_tokens"] == 8
    assert start["seed"] == out.seed
    assert start["num_rows"] == len(out)
    assert "".join(prompt["texts"]) == PROMPT
    assert finish["type"] == "finish"
    assert [row["finish_reason"] for row in finish["rows"]] == out.finish_reasons
    assert finish["usage"]["generated_tokens"] == out.usage.generated_tokens

    for row in range(len(out)):
        tokens = [token for token in of_type(events, "token") if token["row"] == row]
        assert "".join(token["text"] for token in tokens) == out.texts[row]
        assert [token["id"] for token in tokens] == out.token_ids[row].tolist()
        assert [token["pos"] for token in tokens] == list(range(len(tokens)))
        assert [token["logprob"] for token in tokens] == pytest.approx(out.logprobs[row].tolist())
        assert tokens[-1]["finish_reason"] == out.finish_reasons[row]
        for token in tokens:
            assert (token["top"] == []) == ("num_beams" in fields)
            assert not token["top"] or any(top["id"] == token["id"] for top in token["top"])

    nodes = {}
    for step in of_type(events, "beam"):
        for node in step["nodes"]:
            parent = nodes[node["parent"]]["sum"] if node["parent"] is not None else 0.0
            assert node["sum"] == pytest.approx(parent + node["logprob"], abs=1e-5)
            nodes[node["n"]] = node
        assert len(step["frontier"]) <= fields["num_beams"]
        assert nodes.keys() >= set(step["frontier"])
    for row in finish["rows"] if nodes else []:
        assert [nodes[n]["id"] for n in row["path"]] == out.token_ids[row["row"]].tolist()
        assert nodes[row["path"][-1]]["score"] == pytest.approx(row["score"], abs=1e-5)

    drafted = [
        token
        for draft in of_type(events, "draft")
        for token in [*draft["proposed"][: draft["accepted"]], *([draft["next"]] if draft["next"] else [])]
    ]
    assert [token["id"] for token in drafted] == (out.token_ids[0].tolist() if "lookup" in name else [])


def test_drafts_of_an_assistant_come_with_both_probabilities():
    gen = rsgen.Generator(assistant="draft")
    fields = {"max_new_tokens": 24, "num_assistant_tokens": 4, "do_sample": True, "seed": 2}
    # Of transformers' schedules: sampling compares both probabilities.
    fields["num_assistant_tokens_schedule"] = "constant"
    out = gen.assisted_decoding(PROMPT, output_events=True, **fields)
    drafts = of_type(out.events, "draft")
    assert sum(draft["accepted"] for draft in drafts) == out.draft_stats.accepted
    emitted = sum(draft["accepted"] + (draft["next"] is not None) for draft in drafts)
    assert emitted == out.usage.generated_tokens
    first = next(draft for draft in drafts if draft["proposed"])
    assert first["source"] == "assistant_model"
    assert 0 < first["proposed"][0]["p_draft"] <= 1
    assert 0 <= first["proposed"][0]["p_target"] <= 1
    assert "<s>" in out._repr_html_() or first["accepted"] == len(first["proposed"])


def test_a_list_of_prompts_has_the_events_of_each(gen):
    prompts = ["Tom", PROMPT]
    for fields in [{}, SEARCHES["beam_search"]]:
        out = gen.generate(prompts, max_new_tokens=5, output_events=True, **fields)
        assert [event["seq"] for event in out.events] == list(range(len(out.events)))
        assert ["".join(event["texts"]) for event in of_type(out.events, "prompt")] == prompts
        for row, text in enumerate(out.texts):
            tokens = [token for token in of_type(out.events, "token") if token["row"] == row]
            assert "".join(token["text"] for token in tokens) == text
        numbers = [node["n"] for step in of_type(out.events, "beam") for node in step["nodes"]]
        assert len(numbers) == len(set(numbers))
        rows = [row for event in of_type(out.events, "finish") for row in event["rows"]]
        assert [row["prompt"] for row in rows] == out.prompt_indices
        assert [row["row"] for row in rows] == list(range(len(out)))


@pytest.mark.parametrize("fields", [{}, SEARCHES["beam_search"]])
def test_a_stream_gives_events_as_they_happen(gen, fields):
    stream = gen.stream(PROMPT, max_new_tokens=6, output_events=True, **fields)
    events = stream.events()
    seen = [next(events)["type"] for _ in range(3)]
    assert seen[:2] == ["start", "prompt"]
    assert stream.output is None, "it has only begun"
    rest = list(events)
    assert rest[-1]["type"] == "finish"
    assert list(stream.events()) == stream.output.events, "another one begins at the start"
    assert next(events, None) is None
    tokens = [token for token in stream.output.events if token["type"] == "token"]
    assert len(tokens) == stream.output.usage.generated_tokens


def test_tokens_and_events_of_a_stream_go_side_by_side(gen):
    with gen.stream(PROMPT, max_new_tokens=6, output_events=True) as stream:
        events, texts = stream.events(), []
        for token in stream:
            event = next(event for event in events if event["type"] == "token")
            texts.append((token.text, event["text"]))
    assert [left for left, _ in texts] == [right for _, right in texts]
    assert len(texts) == 6


def test_a_closed_stream_ends_with_what_happened(gen):
    before = gen.stats().blocks_used
    stream = gen.stream(PROMPT, max_new_tokens=50, output_events=True)
    events = stream.events()
    while next(events)["type"] != "token":
        pass
    stream.close()
    *_, finish = list(events)
    assert finish["rows"][0]["finish_reason"] == "cancelled"
    del stream, events
    assert gen.stats().blocks_used == before


def test_without_the_field_there_are_none(gen, tmp_path):
    out = gen.generate(PROMPT, max_new_tokens=2)
    assert out.events is None
    with pytest.raises(rsgen.InputError, match="output_events=True"):
        out.save_trace(tmp_path / "x.json")
    with (
        gen.stream(PROMPT, max_new_tokens=2) as stream,
        pytest.raises(rsgen.InputError, match="output_events=True"),
    ):
        stream.events()


def test_a_trace_is_one_json_document(gen, tmp_path):
    out = gen.generate(PROMPT, max_new_tokens=4, num_beams=2, output_events=True)
    path = tmp_path / "x.json"
    out.save_trace(path)
    trace = json.loads(path.read_text(encoding="utf-8"))
    assert trace.keys() == {"schema_version", "rsgen_version", "model", "events"}
    assert trace["rsgen_version"] == rsgen.__version__
    assert "story-3m" in trace["model"]
    assert len(trace["events"]) == len(out.events)
    assert [event["type"] for event in trace["events"]] == [event["type"] for event in out.events]
    assert trace["events"][-1]["rows"][0]["path"] == out.events[-1]["rows"][0]["path"]
    with pytest.raises(rsgen.LoadError, match="cannot be written"):
        out.save_trace(tmp_path)
    assert pickle.loads(pickle.dumps(out)).events == out.events


def test_the_types_have_the_fields_of_the_events(gen):
    kinds = {
        hints["type"].__args__[0]: hints
        for hints in map(typing.get_type_hints, typing.get_args(types.GenerationEvent))
    }
    assert kinds.keys() == {"start", "prompt", "token", "beam", "draft", "finish"}
    for fields in [SEARCHES["sample"], SEARCHES["beam_search"], SEARCHES["prompt_lookup"]]:
        for event in gen.generate("One day. One day", max_new_tokens=4, output_events=True, **fields).events:
            assert event.keys() == kinds[event["type"]].keys()
            for nested, kind in [
                ("top", types.Alternative),
                ("nodes", types.BeamNode),
                ("proposed", types.DraftedToken),
                ("rows", types.FinishedRow),
            ]:
                for item in event.get(nested, []):
                    assert kind.__required_keys__ <= item.keys() <= typing.get_type_hints(kind).keys()


class Tags(HTMLParser):
    """Checks that elements are closed in the order of their opening, and collects their names."""

    def __init__(self):
        super().__init__()
        self.open, self.names = [], set()

    def handle_starttag(self, tag, attrs):
        assert all(not name.startswith("on") and name not in ("src", "href") for name, _ in attrs)
        self.names.add(tag)
        if tag != "br":
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.names.add(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


@pytest.mark.parametrize("fields", [{}, {"output_events": True}, {"output_events": True, "num_beams": 3}])
def test_notebooks_show_static_html(gen, fields):
    out = gen.generate([PROMPT, "Tom"], max_new_tokens=6, **fields)
    html = out._repr_html_()
    tags = Tags()
    tags.feed(html)
    assert tags.open == []
    assert "script" not in tags.names
    assert ("svg" in tags.names) == ("num_beams" in fields)
    assert "prefers-color-scheme:dark" in html
    assert "rp-h" in html.split("</style>")[1]
