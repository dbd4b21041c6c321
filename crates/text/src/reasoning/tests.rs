//! What models write, in each form.

use proptest::prelude::*;

use super::*;
use crate::tool_calls::tests::pieces;

fn form(name: &str) -> &'static ReasoningForm {
    ReasoningForm::named(name).unwrap().unwrap()
}

/// A text in pieces of these lengths.
fn in_pieces(form: &'static ReasoningForm, is_open: bool, text: &str, lengths: &[usize]) -> (String, String) {
    let mut parser = ReasoningParser::new(form, is_open);
    let mut events: Vec<ReasoningEvent> =
        pieces(text, lengths).iter().flat_map(|piece| parser.push(piece)).collect();
    events.extend(parser.finish());
    let (mut reasoning, mut answer) = (String::new(), String::new());
    for event in events {
        match event {
            ReasoningEvent::Reasoning(text) if !text.is_empty() => reasoning.push_str(&text),
            ReasoningEvent::Answer(text) if !text.is_empty() => answer.push_str(&text),
            empty => panic!("{empty:?}"),
        }
    }
    (reasoning, answer)
}

/// Texts with their form and whether the prompt has begun the thinking, the thinking in them, and the answer.
type Case = (&'static str, bool, &'static str, &'static str, &'static str);

const CALL: &str = "<|channel|>commentary to=functions.f<|message|>{\"a\": 1}<|call|>";

#[rustfmt::skip]
const CASES: &[Case] = &[
    ("qwen3", false, "<think>\nTwo.\n\nAnd two.\n</think>\n\nFour. \n", "Two.\n\nAnd two.", "Four. \n"),
    ("qwen3", false, " \n<think>a</think>b", "a", "b"),
    ("qwen3", true, "Two.\n</think>\n\nFour.", "Two.", "Four."),
    // A prompt that has begun the thinking, and a model that begins it once more.
    ("qwen3", true, "<think>\nTwo.</think>Four.", "Two.", "Four."),
    // A prompt that has ended it.
    ("qwen3", false, "Four.", "", "Four."),
    ("qwen3", false, "  Four. ", "", "  Four. "),
    ("qwen3", false, "<think>\n\n</think>\n\nFour.", "", "Four."),
    // It was cut off.
    ("qwen3", true, "Two and </thi", "Two and </thi", ""),
    ("qwen3", true, "Two and \n", "Two and", ""),
    ("qwen3", false, "<thi", "", "<thi"),
    ("qwen3", false, "<think>a</think> \n ", "a", ""),
    ("qwen3", false, "", "", ""),
    ("qwen3", true, " \n", "", ""),
    // Marks further on are of the text.
    ("qwen3", false, "Write <think>a</think>.", "", "Write <think>a</think>."),
    ("qwen3", false, "<think>a</think>b</think><think>c", "a", "b</think><think>c"),
    ("qwen3", true, "<<think>/</think</think>>", "<<think>/</think", ">"),
    ("qwen3", true, "ü\n\u{a0}</think>日本", "ü", "日本"),
    ("deepseek_r1", false, "Two.\n</think>\n\nFour.", "Two.", "Four."),
    ("deepseek_r1", false, "<think>\nTwo.\n</think>\n\nFour.", "Two.", "Four."),
    ("granite", false, "Here is my thought process: Two.\n\nHere is my response: Four.", "Two.", "Four."),
    ("granite", false, "Here's my thought process:\n\nTwo. Here is\n\nHere's my response:\n\nFour.", "Two. Here is", "Four."),
    ("granite", false, "Here is my answer: Four.", "", "Here is my answer: Four."),
    ("mistral", false, "[THINK]Two.[/THINK]Four.", "Two.", "Four."),
    ("seed_oss", false, "<seed:think>Two.</seed:think>Four.", "Two.", "Four."),
    ("command_a", false, "<|START_THINKING|>Two.<|END_THINKING|><|START_RESPONSE|>Four.<|END_RESPONSE|>", "Two.", "<|START_RESPONSE|>Four.<|END_RESPONSE|>"),
    ("openai_gptoss", false, "<|channel|>analysis<|message|>Two.<|end|><|start|>assistant<|channel|>final<|message|>Four.<|return|>", "Two.", "Four."),
    ("openai_gptoss", false, "<|channel|>final<|message|>Four. \n", "", "Four. \n"),
    ("openai_gptoss", false, "<|channel|>analysis<|message|>Two", "Two", ""),
    ("openai_gptoss", false, "<|channel|>analysis<|message|>Two.<|end|><|start|>assis", "Two.", ""),
    ("openai_gptoss", false, "<|channel|>analysis<|message|>a<|end|><|start|>assistant<|channel|>analysis<|message|>b<|end|>", "a\nb", ""),
    // A call, with the name in either part of a head, and after a word to the user.
    ("openai_gptoss", false, "<|channel|>analysis<|message|>Two.<|end|><|start|>assistant<|channel|>commentary to=functions.f <|constrain|>json<|message|>{\"a\": 1}<|call|>", "Two.", CALL),
    ("openai_gptoss", false, "<|channel|>analysis<|message|>Two.<|end|><|start|>assistant to=functions.f<|channel|>commentary json<|message|>{\"a\": 1}<|call|>", "Two.", CALL),
    ("openai_gptoss", false, " to=functions.f<|channel|>commentary<|message|>{\"a\": 1}<|call|>", "", CALL),
    ("openai_gptoss", false, "<|channel|>commentary<|message|>I look.<|end|><|start|>assistant<|channel|>commentary to=functions.f<|message|>{", "", "I look.<|channel|>commentary to=functions.f<|message|>{"),
    ("openai_gptoss", false, "<|channel|>analysis to=python code<|message|>1 + 1<|call|>", "1 + 1", ""),
    ("openai_gptoss", false, "<|channel|>commentary<|message|>I look.<|end|><|start|>assistant<|channel|>final<|message|>Four.", "", "I look.\nFour."),
    // Ends that are missing, and heads that are none.
    ("openai_gptoss", false, "<|channel|>analysis<|message|>Two.<|channel|>final<|message|>Four.", "Two.", "Four."),
    ("openai_gptoss", false, "Four. \n", "", "Four. \n"),
    ("openai_gptoss", false, " to=be is to do", "", " to=be is to do"),
    ("openai_gptoss", false, " \n", "", " \n"),
    ("openai_gptoss", false, "<|message|>Four.", "", "Four."),
    ("openai_gptoss", true, "Two.<|end|> <|start|>assistant<|channel|>final<|message|>Four.<|end|> \n", "Two.", "Four."),
];

#[test]
fn each_form_reads_what_its_models_write() {
    for (name, is_open, text, reasoning, answer) in CASES {
        let found = ReasoningParser::new(form(name), *is_open).parse(text);
        assert_eq!(found, ((*reasoning).to_owned(), (*answer).to_owned()), "{name}: {text:?}");
    }
    for form in ReasoningForm::all() {
        assert!(CASES.iter().any(|case| case.0 == form.name), "{} has no text here", form.name);
    }
}

#[test]
fn every_text_may_be_cut_at_every_place() {
    for (name, is_open, text, ..) in CASES {
        let form = form(name);
        let whole = ReasoningParser::new(form, *is_open).parse(text);
        for first in 1..=text.chars().count() {
            let cut = in_pieces(form, *is_open, text, &[first, 1 << 20]);
            assert_eq!(cut, whole, "{name}: {text:?} cut at {first}");
        }
        assert_eq!(in_pieces(form, *is_open, text, &[1]), whole, "{name}: {text:?} letter by letter");
    }
}

#[test]
fn a_head_has_an_end() {
    let form = form("openai_gptoss");
    for len in 490..540 {
        let text = format!("<|channel|>{}<|message|>a<|return|>", "x".repeat(len));
        let whole = ReasoningParser::new(form, false).parse(&text);
        assert_eq!(whole.1 == "a", len + "<|channel|>".len() <= 512, "{len}");
        assert_eq!(in_pieces(form, false, &text, &[1]), whole, "{len}");
    }
}

fn fragments() -> impl Strategy<Value = String> {
    let marks = ReasoningForm::all().flat_map(ReasoningForm::marks).map(str::to_owned);
    let cases = CASES.iter().map(|case| case.2.to_owned()).filter(|text| !text.is_empty());
    let others = ["<", "</", "|>", "a", "ü", " ", "\n", " to=", "functions.f", "analysis", "final", "think>"];
    let pieces: Vec<String> = marks.chain(cases).chain(others.map(str::to_owned)).collect();
    proptest::collection::vec(proptest::sample::select(pieces), 0..8).prop_map(|pieces| pieces.concat())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]
    #[test]
    fn any_text_in_any_pieces_gives_the_same(
        text in fragments(), is_open: bool, lengths in proptest::collection::vec(1_usize..9, 1..6),
    ) {
        for form in ReasoningForm::all() {
            let whole = ReasoningParser::new(form, is_open).parse(&text);
            prop_assert_eq!(in_pieces(form, is_open, &text, &lengths), whole, "{}", form.name);
        }
    }

    #[test]
    fn what_holds_no_mark_is_the_answer(text in "[a-z .,\n]{0,60}") {
        for form in ReasoningForm::all().filter(|form| form.name != "deepseek_r1") {
            let found = ReasoningParser::new(form, false).parse(&text);
            prop_assert_eq!(found, (String::new(), text.clone()), "{}", form.name);
        }
    }
}

#[test]
fn a_template_tells_its_form() {
    for (template, name) in [
        ("{{ '<think>\\n' }}", Some("qwen3")),
        ("[INST] [THINK]{{ text }}[/THINK]", Some("mistral")),
        ("<|start|>assistant<|channel|>analysis<|message|>", Some("openai_gptoss")),
        ("after 'Here is my thought process:' and 'Here is my response:'", Some("granite")),
        ("<seed:think>", Some("seed_oss")),
        ("<|START_THINKING|>", Some("command_a")),
        ("<|im_start|>", None),
    ] {
        assert_eq!(ReasoningForm::of_template(template).map(|form| form.name), name, "{template}");
    }
    assert!(ReasoningForm::named("none").unwrap().is_none());
    let error = ReasoningForm::named("other").unwrap_err();
    assert_eq!(error.field(), Some("reasoning_parser"));
    assert!(error.to_string().contains("qwen3, deepseek_r1, granite, none"), "{error}");
}

#[test]
fn a_prompt_tells_whether_it_has_begun_the_thinking() {
    let [qwen3, r1, harmony] = ["qwen3", "deepseek_r1", "openai_gptoss"].map(form);
    assert!(qwen3.is_open("<|im_start|>assistant\n<think>\n", false));
    assert!(!qwen3.is_open("<|im_start|>assistant\n<think>\n\n</think>\n\n", false));
    assert!(
        !qwen3.is_open("<|im_start|>user\nWhat is <think>?<|im_start|>assistant\n", false),
        "a user's word"
    );
    assert!(r1.is_open("", false));
    assert!(qwen3.is_open("a <think>\nbecause", true));
    assert!(!qwen3.is_open("a <think>\nbecause</think>so", true));
    assert!(!harmony.is_open("<|start|>assistant", false));
}
