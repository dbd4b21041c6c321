//! What models write, in each form: what they are taught, and what they make of it.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use rsgen_core::types::TokenId;

fn tools() -> Tools {
    let tool = |name: &str| {
        json!({ "type": "function", "function": { "name": name, "parameters": { "type": "object", "properties": {
            "city": { "type": "string" }, "days": { "type": "integer" }, "more": { "type": "object" },
        } } } })
    };
    Tools::read(&["weather", "get_time", "ns.f-1"].map(tool)).unwrap()
}

fn parse(form: &str, text: &str) -> (String, Vec<(String, String)>) {
    let (text, calls) = ToolParser::new(ToolForm::named(form).unwrap(), &tools()).parse(text);
    (text, calls.into_iter().map(|call| (call.name, call.arguments)).collect())
}

/// A text in pieces of so many letters, over and over; at least one each.
pub(crate) fn pieces(text: &str, lengths: &[usize]) -> Vec<String> {
    let (mut letters, mut pieces) = (text.chars().peekable(), Vec::new());
    for len in lengths.iter().cycle() {
        if letters.peek().is_none() {
            break;
        }
        pieces.push(letters.by_ref().take((*len).max(1)).collect());
    }
    pieces
}

/// An answer in pieces of these lengths.
fn in_pieces(
    form: &'static ToolForm,
    text: &str,
    lengths: &[usize],
) -> (String, Vec<ToolCall>, Vec<ToolEvent>) {
    let mut parser = ToolParser::new(form, &tools());
    let mut events: Vec<ToolEvent> =
        pieces(text, lengths).iter().flat_map(|piece| parser.push(piece)).collect();
    events.extend(parser.finish());
    let (mut text, mut calls) = (String::new(), Vec::new());
    events.iter().cloned().for_each(|event| event.add_to(&mut text, &mut calls));
    (text, calls, events)
}

/// Answers with their form, the text in them, and their calls.
type Case = (&'static str, &'static str, &'static str, &'static [(&'static str, &'static str)]);

const BERN: (&str, &str) = ("weather", r#"{"city": "Bern"}"#);
const ROME: (&str, &str) = ("get_time", r#"{"city": "Rome"}"#);

#[rustfmt::skip]
const CASES: &[Case] = &[
    // One call, and several; text before, between and after.
    ("hermes", "<tool_call>\n{\"name\": \"weather\", \"arguments\": {\"city\": \"Bern\"}}\n</tool_call>", "", &[BERN]),
    ("hermes", "I look.\n\n<tool_call>\n{\"name\": \"weather\", \"arguments\": {\"city\": \"Bern\"}}\n</tool_call>\n<tool_call>\n{\"name\": \"get_time\", \"arguments\": {\"city\": \"Rome\"}}\n</tool_call>\n  Done. ", "I look.\n\nDone. ", &[BERN, ROME]),
    ("hermes", "no call at all \n", "no call at all \n", &[]),
    ("hermes", "", "", &[]),
    // Keys in any order, more of them, other names of them, objects within, a text that holds the object.
    ("hermes", "<tool_call>{\"arguments\": {\"city\": \"Bern\"}, \"name\": \"weather\"}</tool_call>", "", &[BERN]),
    ("hermes", "<tool_call>{\"id\": 7, \"name\": \"weather\", \"why\": [\"}\"], \"parameters\": {\"city\": \"Bern\"}}</tool_call>", "", &[BERN]),
    ("hermes", "<tool_call>{\"type\": \"function\", \"function\": {\"name\": \"weather\", \"arguments\": {\"city\": \"Bern\"}}}</tool_call>", "", &[BERN]),
    ("hermes", "<tool_call>{\"function\": \"weather\", \"arguments\": {\"city\": \"Bern\"}}</tool_call>", "", &[BERN]),
    ("hermes", "<tool_call>{\"name\": \"weather\", \"arguments\": \"{\\\"city\\\": \\\"Bern\\\"}\"}</tool_call>", "", &[BERN]),
    ("hermes", "<tool_call>{\"name\": \"weather\"}</tool_call>", "", &[("weather", "{}")]),
    ("hermes", "<tool_call>{\"name\": \"weather\", \"arguments\": null}</tool_call>", "", &[("weather", "{}")]),
    ("hermes", "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": {\"b\": [1, {\"c\": \"</tool_call>\"}]}, \"name\": \"x\"}}</tool_call>", "", &[("f", "{\"a\": {\"b\": [1, {\"c\": \"</tool_call>\"}]}, \"name\": \"x\"}")]),
    ("hermes", "<tool_call>{\"name\": \"w\\u0065ather\", \"arguments\": {\"city\": \"Z\\u00fcrich \\ud83d\\ude00 北京\"}}</tool_call>", "", &[("weather", "{\"city\": \"Z\\u00fcrich \\ud83d\\ude00 北京\"}")]),
    // A line break within a text, as models write code.
    ("hermes", "<tool_call>{\"name\": \"weather\", \"arguments\": {\"city\": \"a\n\tb\"}}</tool_call>", "", &[("weather", "{\"city\": \"a\\n\\tb\"}")]),
    // Several in a list, or without marks between; a bracket too much, too little; no end.
    ("hermes", "<tool_call>[{\"name\": \"weather\", \"arguments\": {\"city\": \"Bern\"}}, {\"name\": \"get_time\", \"arguments\": {\"city\": \"Rome\"}}]</tool_call>", "", &[BERN, ROME]),
    ("hermes", "<tool_call>{\"name\": \"weather\", \"arguments\": {\"city\": \"Bern\"}}\n{\"name\": \"get_time\", \"arguments\": {\"city\": \"Rome\"}}</tool_call>", "", &[BERN, ROME]),
    ("hermes", "<tool_call>{\"name\": \"weather\", \"arguments\": {\"city\": \"Bern\"}}}</tool_call>", "", &[BERN]),
    ("hermes", "<tool_call>{\"name\": \"weather\", \"arguments\": {\"city\": \"Bern\"}</tool_call>", "", &[BERN]),
    ("hermes", "<tool_call>{\"name\": \"weather\", \"arguments\": {\"city\": \"Bern\"}}<tool_call>{\"name\": \"get_time\", \"arguments\": {\"city\": \"Rome\"}}", "", &[BERN, ROME]),
    // What is no call stays text.
    ("hermes", "a <tool_call>{\"name\": 3, \"arguments\": {}}</tool_call>", "a <tool_call>{\"name\": 3, \"arguments\": {}}", &[]),
    ("hermes", "<tool_call>{name: \"weather\"}", "<tool_call>{name: \"weather\"}", &[]),
    ("hermes", "<tool_call>{\"name\": \"weather\", \"arguments\": [1]}", "<tool_call>{\"name\": \"weather\", \"arguments\": [1]}", &[]),
    ("hermes", "The mark is <tool_call>, \nthen JSON", "The mark is <tool_call>, \nthen JSON", &[]),
    ("hermes", "<tool_call> <tool_call>{\"name\": \"weather\", \"arguments\": {\"city\": \"Bern\"}}</tool_call>", "<tool_call>", &[BERN]),
    ("hermes", "<tool_call>\n{\"name\": \"wea", "<tool_call>\n{\"name\": \"wea", &[]),
    // Cut off, or no JSON, after a call has begun: what there is.
    ("hermes", "<tool_call>\n{\"name\": \"weather\", \"arguments\": {\"city\": \"Be", "", &[("weather", "{\"city\": \"Be")]),
    ("hermes", "<tool_call>{\"name\": \"weather\", \"arguments\": {\"a\": }}</tool_call> x", "x", &[("weather", "{\"a\": }}")]),
    ("llama3_json", "<|python_tag|>{\"name\": \"weather\", \"parameters\": {\"city\": \"Bern\"}}<|eom_id|>", "", &[BERN]),
    ("llama3_json", "{\"name\": \"weather\", \"parameters\": {\"city\": \"Bern\"}}; {\"name\": \"get_time\", \"parameters\": {\"city\": \"Rome\"}}", "", &[BERN, ROME]),
    ("llama3_json", "{\"type\": \"function\", \"name\": \"weather\", \"parameters\": {\"city\": \"Bern\"}}", "", &[BERN]),
    ("llama3_json", "Here:\n  {\"name\": \"weather\", \"parameters\": {\"city\": \"Bern\"}}", "Here:", &[BERN]),
    ("llama3_json", "{\"name\": \"Bob\", \"parameters\": {}}", "{\"name\": \"Bob\", \"parameters\": {}}", &[]),
    ("llama3_json", "{\"name\": \"weather\", \"age\": 3}\n{\"name\": \"weather\", \"parameters\": {\"city\": \"Bern\"}}", "{\"name\": \"weather\", \"age\": 3}", &[BERN]),
    ("llama3_json", "a {\"name\": \"weather\", \"parameters\": {}}", "a {\"name\": \"weather\", \"parameters\": {}}", &[]),
    ("llama3_json", "{{{\n{[", "{{{\n{[", &[]),
    ("llama3_json", "<|python_tag|>print(1)", "<|python_tag|>print(1)", &[]),
    ("json", "```json\n{\"name\": \"weather\", \"arguments\": {\"city\": \"Bern\"}}\n```\nThere.", "There.", &[BERN]),
    ("json", "[{\"name\": \"weather\", \"arguments\": {\"city\": \"Bern\"}}, {\"name\": \"get_time\", \"arguments\": {\"city\": \"Rome\"}}]", "", &[BERN, ROME]),
    ("json", "```json\n{\"age\": 3}\n```", "```json\n{\"age\": 3}\n```", &[]),
    ("json", "[1, 2]", "[1, 2]", &[]),
    ("json", "{\"name\": \"weather\"}", "{\"name\": \"weather\"}", &[]),
    ("mistral", "[TOOL_CALLS] [{\"name\": \"weather\", \"arguments\": {\"city\": \"Bern\"}}, {\"arguments\": {\"city\": \"Rome\"}, \"name\": \"get_time\"}]", "", &[BERN, ROME]),
    ("mistral", "Sure. [TOOL_CALLS]weather[ARGS]{\"city\": \"Bern\"}[TOOL_CALLS]get_time{\"city\": \"Rome\"}", "Sure.", &[BERN, ROME]),
    ("mistral_v11", "[TOOL_CALLS]weather[CALL_ID]abc123def[ARGS]{\"city\": \"Bern\"}", "", &[BERN]),
    ("mistral_v11", "[TOOL_CALLS][{\"name\": \"weather\", \"arguments\": {\"city\": \"Bern\"}}]", "", &[BERN]),
    ("mistral_v11", "[TOOL_CALLS]weather[ARGS]{\"city\": \"Be", "", &[("weather", "{\"city\": \"Be")]),
    ("mistral", "[TOOL_CALLS] []", "[TOOL_CALLS] []", &[]),
    ("mistral", "[TOOL_CALLS]what is {this}", "[TOOL_CALLS]what is {this}", &[]),
    ("mistral", "[TOOL_CALLS]", "[TOOL_CALLS]", &[]),
    ("granite", "<|tool_call|>[{\"name\": \"weather\", \"arguments\": {\"city\": \"Bern\"}}]", "", &[BERN]),
    ("granite", "<tool_call> [{\"name\": \"weather\", \"arguments\": {\"city\": \"Bern\"}}, {\"name\": \"get_time\", \"arguments\": {\"city\": \"Rome\"}}]", "", &[BERN, ROME]),
    ("phi4_mini_json", "<|tool_call|>[{\"type\": \"function\", \"function\": {\"name\": \"weather\", \"arguments\": {\"city\": \"Bern\"}}}]<|/tool_call|>", "", &[BERN]),
    ("phi4_mini_json", "functools[{\"name\": \"weather\", \"arguments\": {\"city\": \"Bern\"}}]", "", &[BERN]),
    ("phi4_mini_json", "It is in functools of Python.", "It is in functools of Python.", &[]),
    ("command_r", "<|START_ACTION|>[\n    {\"tool_call_id\": \"0\", \"tool_name\": \"weather\", \"parameters\": {\"city\": \"Bern\"}},\n    {\"tool_call_id\": \"1\", \"tool_name\": \"get_time\", \"parameters\": {\"city\": \"Rome\"}}\n]<|END_ACTION|>", "", &[BERN, ROME]),
    ("command_r", "Action: ```json\n[{\"tool_name\": \"weather\", \"parameters\": {\"city\": \"Bern\"}}]```", "", &[BERN]),
    ("command_r", "<|START_RESPONSE|>Hello<|END_RESPONSE|>", "Hello", &[]),
    ("deepseek_v3", "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>weather\n```json\n{\"city\": \"Bern\"}\n```<｜tool▁call▁end｜>\n<｜tool▁call▁begin｜>function<｜tool▁sep｜>get_time\n```json\n{\"city\": \"Rome\"}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>", "", &[BERN, ROME]),
    ("deepseek_v31", "Yes.<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>weather<｜tool▁sep｜>{\"city\": \"Bern\"}<｜tool▁call▁end｜><｜tool▁calls▁end｜>", "Yes.", &[BERN]),
    ("deepseek_v31", "<｜tool▁call▁begin｜>weather{\"city\": \"Bern\"}", "<｜tool▁call▁begin｜>weather{\"city\": \"Bern\"}", &[]),
    ("qwen3_coder", "<tool_call>\n<function=weather>\n<parameter=city>\nBern\n</parameter>\n<parameter=days>\n3\n</parameter>\n</function>\n</tool_call>", "", &[("weather", "{\"city\": \"Bern\", \"days\": 3}")]),
    ("qwen3_coder", "So:\n<tool_call>\n<function=weather>\n<parameter=city>\n12\n \"a\" <b>\n</parameter>\n<parameter=more>{\"a\": [True]}</parameter></function>\n</tool_call>\nok", "So:\nok", &[("weather", "{\"city\": \"12\\n \\\"a\\\" <b>\", \"more\": \"{\\\"a\\\": [True]}\"}")]),
    ("qwen3_coder", "<function=weather>\n<parameter=city>\nBern\n<parameter=days>\n3\n</function>", "", &[("weather", "{\"city\": \"Bern\", \"days\": 3}")]),
    ("qwen3_coder", "<tool_call>\n<function=get_time>\n</function>\n</tool_call>\n<tool_call>\n<function=weather>\n</function>\n</tool_call>", "", &[("get_time", "{}"), ("weather", "{}")]),
    ("qwen3_coder", "<function=no name>", "<function=no name>", &[]),
    ("pythonic", "[weather(city='Bern'), get_time(city=\"Rome\")]", "", &[BERN, ROME]),
    ("pythonic", "<|python_start|>[weather(city='B\\'\\u00fc', days=-3, more={'a': [1.5, None, True], \"b\": (1,)})]<|python_end|>", "", &[("weather", "{\"city\": \"B'ü\", \"days\": -3, \"more\": {\"a\": [1.5, null, true], \"b\": [1]}}")]),
    ("pythonic", "[get_time()]", "", &[("get_time", "{}")]),
    ("pythonic", "[ns.f-1(city=\"a, (b)\")]", "", &[("ns.f-1", "{\"city\": \"a, (b)\"}")]),
    ("pythonic", "[other(city='Bern')]", "[other(city='Bern')]", &[]),
    ("pythonic", "[weather(city=open('x'))]", "[weather(city=open('x'))]", &[]),
    ("pythonic", "[weather(city='Be", "[weather(city='Be", &[]),
    ("pythonic", "[1, 2]", "[1, 2]", &[]),
    ("openai", "<|channel|>commentary to=functions.weather <|constrain|>json<|message|>{\"city\": \"Bern\"}<|call|>", "", &[BERN]),
    ("openai", "<|channel|>commentary<|message|>I look.<|end|><|start|>assistant<|channel|>commentary to=functions.ns.f-1<|message|>{}<|call|>", "I look.", &[("ns.f-1", "{}")]),
    ("openai", "<|channel|>final<|message|>Hello<|return|>", "Hello", &[]),
    ("openai", "<|channel|>commentary to=functions.weather <|constrain|>json<|message|>{\"city\": \"Be", "", &[("weather", "{\"city\": \"Be")]),
];

#[test]
fn each_form_reads_what_its_models_write() {
    for (form, answer, text, calls) in CASES {
        let calls: Vec<_> =
            calls.iter().map(|(name, arguments)| ((*name).to_owned(), (*arguments).to_owned())).collect();
        assert_eq!(parse(form, answer), ((*text).to_owned(), calls), "{form}: {answer}");
    }
    let forms: Vec<&str> = CASES.iter().map(|case| case.0).collect();
    for form in ToolForm::all() {
        assert!(forms.contains(&form.name), "{} has no answer here", form.name);
    }
}

#[test]
fn every_answer_may_be_cut_at_every_place() {
    for (form, answer, ..) in CASES {
        let form = ToolForm::named(form).unwrap();
        let whole = ToolParser::new(form, &tools()).parse(answer);
        for first in 1..=answer.chars().count() {
            let (text, calls, _) = in_pieces(form, answer, &[first, 1 << 20]);
            assert_eq!((text, calls), whole, "{}: {answer:?} cut at {first}", form.name);
        }
        let (text, calls, _) = in_pieces(form, answer, &[1]);
        assert_eq!((text, calls), whole, "{}: {answer:?} letter by letter", form.name);
    }
}

#[test]
fn a_closing_mark_that_is_cut_off_is_no_text() {
    let call = "<tool_call>\n{\"name\": \"weather\", \"arguments\": {\"city\": \"Bern\"}}\n";
    let form = ToolForm::named("hermes").unwrap();
    for (end, text) in [
        ("<", ""),
        ("</tool_cal", ""),
        ("</tool_call>\n<", ""),
        ("</toolbox", "</toolbox"),
        ("Yes <", "Yes <"),
    ] {
        for answer in [format!("{call}{end}"), format!("Wait.\n{call}{end}")] {
            let (said, calls) = ToolParser::new(form, &tools()).parse(&answer);
            let before = if answer.starts_with('W') { "Wait." } else { "" };
            assert_eq!((said.replace('\n', ""), calls.len()), (format!("{before}{text}"), 1), "{answer:?}");
        }
    }
}

/// Pieces of answers, in any order.
fn fragments() -> impl Strategy<Value = String> {
    let pieces: Vec<String> = ToolForm::all()
        .flat_map(ToolForm::marks)
        .map(str::to_owned)
        .chain(CASES.iter().map(|case| case.1.to_owned()))
        .chain(
            [
                " ",
                "\n",
                "{",
                "}",
                "[",
                "]",
                "\"",
                "\\",
                ",",
                ":",
                "name",
                "\"name\": \"weather\"",
                "\"arguments\": {",
                "a",
                "ü",
                "<",
                "</",
                "|>",
                "```",
                "weather(",
                ")",
                "'",
                "=",
            ]
            .map(str::to_owned),
        )
        .filter(|piece| !piece.is_empty())
        .collect();
    proptest::collection::vec(proptest::sample::select(pieces), 0..8).prop_map(|pieces| pieces.concat())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]
    #[test]
    fn any_answer_in_any_pieces_gives_the_same_calls_and_text(answer in fragments(), lengths in proptest::collection::vec(1_usize..9, 1..6)) {
        for form in ToolForm::all() {
            let whole = ToolParser::new(form, &tools()).parse(&answer);
            let (text, calls, events) = in_pieces(form, &answer, &lengths);
            prop_assert_eq!(&(text, calls), &whole, "{}", form.name);
            // A name comes before the arguments of its call, and calls one after the other.
            let mut begun = 0;
            for event in events {
                match event {
                    ToolEvent::Begin { index, .. } => {
                        prop_assert_eq!(index, begun);
                        begun += 1;
                    }
                    ToolEvent::Arguments { index, .. } => prop_assert_eq!(index + 1, begun),
                    ToolEvent::Text(text) => prop_assert!(!text.is_empty()),
                }
            }
        }
    }

    #[test]
    fn what_holds_no_mark_is_text(answer in "[a-z .,\n]{0,60}") {
        for form in ToolForm::all() {
            prop_assert_eq!(ToolParser::new(form, &tools()).parse(&answer), (answer.clone(), Vec::new()));
        }
    }
}

#[test]
fn arguments_come_in_pieces_after_the_name() {
    let (_, _, events) = in_pieces(ToolForm::named("hermes").unwrap(), CASES[0].1, &[4]);
    assert_eq!(events[0], ToolEvent::Begin { index: 0, name: "weather".to_owned() });
    assert!(events.len() > 4, "{events:?}");
}

#[test]
fn no_mark_of_a_form_holds_another() {
    for form in ToolForm::all() {
        let marks: Vec<&str> =
            form.marks.iter().map(|mark| mark.0).chain(form.dropped.iter().copied()).collect();
        for (index, mark) in marks.iter().enumerate() {
            let others = marks.iter().enumerate().filter(|(other, _)| *other != index);
            assert!(
                !others.map(|(_, other)| other).any(|other| mark.contains(other)),
                "{}: {mark}",
                form.name
            );
        }
    }
}

#[test]
fn a_template_tells_its_form() {
    for (template, form) in [
        ("<tool_call>\n{{ call | tojson }}\n</tool_call>", "hermes"),
        ("<tool_call><function=f><parameter=p>", "qwen3_coder"),
        ("{{ '[TOOL_CALLS] [' }}", "mistral"),
        ("[TOOL_CALLS]{{ name }}[ARGS]{{ args }}", "mistral_v11"),
        ("<|start_header_id|> {\"name\": function name, \"parameters\": dictionary}", "llama3_json"),
        ("<｜tool▁call▁begin｜>{{ type }}<｜tool▁sep｜>{{ name }}\n```json", "deepseek_v3"),
        ("<｜tool▁call▁begin｜>{{ name }}<｜tool▁sep｜>", "deepseek_v31"),
        ("<|START_ACTION|>", "command_r"),
        ("<|channel|>commentary to={{ 'functions.' + name }}<|message|>", "openai"),
        ("<|start_of_role|>available_tools<|end_of_role|>", "granite"),
        ("{{ tools }}", "json"),
    ] {
        assert_eq!(ToolForm::of_template(template).name, form, "{template}");
    }
}

#[test]
fn tools_have_names_of_their_own() {
    for (tools, why) in [
        (json!([{ "type": "function" }]), "must have a `name`"),
        (json!([{ "name": "a" }, { "function": { "name": "a" } }]), "of its own"),
        (json!([{ "name": "a", "parameters": "b" }]), "a JSON schema"),
    ] {
        let error = Tools::read(tools.as_array().unwrap()).unwrap_err();
        assert_eq!(error.field(), Some("tools"));
        assert!(error.to_string().contains(why), "{error}");
    }
    assert!(ToolForm::named("none").unwrap_err().to_string().contains("hermes"));
}

#[test]
fn no_two_ids_are_equal() {
    let ids: std::collections::HashSet<String> = (0..1000).map(|_| new_call_id()).collect();
    assert_eq!(ids.len(), 1000);
    assert!(ids.iter().all(|id| id.len() == 9 && id.bytes().all(|byte| byte.is_ascii_alphanumeric())));
}

#[test]
fn a_grammar_holds_the_calls_that_were_chosen() {
    let (form, tools) = (ToolForm::named("mistral").unwrap(), tools());
    let special = |mark: &str| (mark == "[TOOL_CALLS]").then_some(TokenId(5));
    let tokens = ToolTokens { special: &special, any: &special };
    let grammar = |choice, parallel| form.grammar(&tools, &choice, parallel, &tokens);
    assert_eq!(grammar(ToolChoice::None, true).unwrap(), None);
    let lark = grammar(ToolChoice::Auto, true).unwrap().unwrap();
    assert!(
        lark.starts_with("start: (<[^5]> | <[5]> first (\", \" call)* \"]\")*\nfirst: first_0 | "),
        "{lark}"
    );
    assert!(lark.contains("first_0: \"[{\\\"name\\\": \\\"weather\\\""), "{lark}");
    let hermes = ToolForm::named("hermes").unwrap().grammar(&tools, &ToolChoice::Auto, false, &tokens);
    assert!(hermes.unwrap().unwrap().starts_with("start: trigger first \"\" | TEXT\n"));
    let json = ToolForm::named("json").unwrap().grammar(&tools, &ToolChoice::Auto, false, &tokens);
    assert_eq!(json.unwrap(), None, "nothing tells that a call begins");
    let lark = grammar(ToolChoice::Required, true).unwrap().unwrap();
    assert!(
        lark.starts_with(
            "start: \"\" <[5]> \"[\" call (\", \" call)* \"]\"\ncall: call_0 | call_1 | call_2\n"
        ),
        "{lark}"
    );
    let lark = grammar(ToolChoice::Named("weather".to_owned()), true).unwrap().unwrap();
    assert!(
        lark.contains(
            "start: \"\" <[5]> \"[\" call \"]\"\ncall: call_0\ncall_0: \"{\\\"name\\\": \\\"weather\\\", "
        ),
        "{lark}"
    );
    for (choice, tools) in
        [(ToolChoice::Named("no".to_owned()), &tools), (ToolChoice::Required, &Tools::default())]
    {
        let error = form.grammar(tools, &choice, true, &tokens).unwrap_err();
        assert_eq!(error.field(), Some("tool_choice"), "{error}");
    }
}

#[test]
fn an_unused_value_is_not_taken_for_arguments() {
    assert_eq!(arguments_of("\"[1]\""), None);
    assert_eq!(arguments_of("\" \""), Some("{}".to_owned()));
    assert_eq!(Value::from(partial("ab<", &["<|a|>"])), json!(1));
}

#[test]
fn a_message_of_harmony_is_a_call_or_none() {
    let form = ToolForm::named("openai").unwrap();
    let special = |mark: &str| match mark {
        "<|channel|>" => Some(TokenId(5)),
        "<|message|>" => Some(TokenId(8)),
        "<|constrain|>" => Some(TokenId(3)),
        _ => None,
    };
    let tokens = ToolTokens { special: &special, any: &special };
    let grammar = |choice| form.grammar(&tools(), &choice, false, &tokens).unwrap().unwrap();
    let lark = grammar(ToolChoice::Auto);
    assert!(
        lark.starts_with(
            "start: (<[^5]> | <[5]> (\"analysis\" <[8]> \"\" | \"commentary\" <[8]> \"\" | \"final\" <[8]> \"\"))* (<[5]> first \"\")?\n"
        ),
        "{lark}"
    );
    assert!(
        lark.contains("first_0: \"commentary to=functions.weather \" <[3]> \"json\" <[8]> \"\" %json "),
        "{lark}"
    );
    assert!(grammar(ToolChoice::Required).contains("call_0: \"\" <[5]> \"commentary to=functions.weather"));
}
