//! Chat templates of many families, with many conversations: byte for byte equal to transformers.

use rsgen::Result;
use rsgen::text::{ChatOptions, ChatTemplate, Message};
use serde_json::{Map, Value};

const GOLDEN: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/chat_templates.json");

/// Templates of the golden that print something else here, or fail: the listed differences.
const DIFFERENT: [(&str, Option<&str>); 16] = [
    (VARARGS, None),
    ("{% macro m(x) %}{{ m.name }}{{ m.arguments }}{% endmacro %}{{ m(1) }}", Some("m['x']")),
    ("{% with a = 1, b = a %}{{ a }}{{ b }}{% endwith %}", Some("11")),
    ("{{ range(3) }}", Some("[0, 1, 2]")),
    ("{{ range(0) }}", Some("[]")),
    ("{{ range(2, 9, 3) }}", Some("[2, 5, 8]")),
    ("{{ range(5)[1:3] }}", Some("[1, 2]")),
    ("{{ {'a':1}.items() }}", Some("[('a', 1)]")),
    ("{{ messages[0].items() }}", Some("[('role', 'user'), ('content', 'Hi')]")),
    ("{{ 'aB'.swapcase() }}", None),
    (r"{{ 'a\tb'.expandtabs(4) }}", None),
    ("{{ '%05.2f|%x|%r' % (3.14159, 255, 'q') }}", None),
    ("{{ '{0!r} {1:>4}|{2:^7}|{3:,}'.format('a', 1, 'mid', 1234567) }}", None),
    ("{{ '{:.3g} {:e} {:%} {:+d} {:#x} {:08.3f}'.format(1234.5, 0.00012, 0.5, 3, 255, -3.14159) }}", None),
    ("{{ '{:{}}|'.format('a', 5) }}", None),
    ("{{ ('< '|safe).strip() is escaped }}", Some("False")),
];
const VARARGS: &str = "{% macro m() %}{{ varargs }}{{ kwargs }}{% endmacro %}{{ m(1, x=2) }}";

/// The arguments of a case as options; others are variables of the template.
fn options(case: &Map<String, Value>) -> ChatOptions {
    let mut options = ChatOptions::default();
    for (name, value) in case {
        let list = || value.as_array().cloned();
        match name.as_str() {
            "messages" => {}
            "tools" => options.tools = list(),
            "documents" => options.documents = list(),
            "add_generation_prompt" => options.add_generation_prompt = value.as_bool().unwrap(),
            "continue_final_message" => {
                options.continue_final_message = Some(value.as_str().unwrap_or("content").to_owned());
            }
            _ => {
                options.chat_template_kwargs.insert(name.clone(), value.clone());
            }
        }
    }
    options
}

#[test]
fn prompts_are_byte_for_byte_those_of_transformers() {
    let golden: Value = serde_json::from_slice(&std::fs::read(GOLDEN).unwrap()).unwrap();
    let tokens = golden["special_tokens"].as_object().unwrap();
    let tokens: Vec<(&str, &str)> =
        tokens.iter().map(|(name, token)| (name.as_str(), token.as_str().unwrap())).collect();
    let cases = golden["cases"].as_object().unwrap();
    let templates = golden["templates"].as_object().unwrap();
    let (mut compared, mut different) = (0, Vec::new());
    for (family, template) in templates {
        let source = template["source"].as_str().unwrap();
        let chat = ChatTemplate::with_special_tokens(source, tokens.iter().copied()).unwrap();
        for ((name, case), expected) in cases.iter().zip(template["rendered"].as_array().unwrap()) {
            let case = case.as_object().unwrap();
            let messages = case["messages"].as_array().unwrap().iter().cloned();
            let messages: Vec<Message> = messages.map(|message| message.try_into().unwrap()).collect();
            let result = chat.render(&messages, &options(case));
            compared += 1;
            let same = match (&result, &expected["text"], &expected["error"]) {
                (Ok(text), Value::String(expected), _) => text == expected,
                (Err(error), _, Value::String(message)) => error.to_string().ends_with(message.as_str()),
                _ => false,
            };
            if !same {
                different.push(format!("{family}, {name}:\n  expected {expected}\n  got      {result:?}"));
            }
        }
    }
    assert!(different.is_empty(), "{} of {compared}\n{}", different.len(), different.join("\n"));
    assert!(templates.len() >= 60 && cases.len() >= 8, "the golden holds too little");
}

#[test]
fn expressions_and_statements_print_what_jinja_prints() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/jinja.json");
    let golden: Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
    let messages = golden["messages"].as_array().unwrap().iter().cloned();
    let messages: Vec<Message> = messages.map(|message| message.try_into().unwrap()).collect();
    let options = ChatOptions { add_generation_prompt: true, ..ChatOptions::default() };
    let mut different = Vec::new();
    for case in golden["printed"].as_array().unwrap() {
        let source = case[0].as_str().unwrap();
        let result = ChatTemplate::from_source(source).and_then(|chat| chat.render(&messages, &options));
        let listed = DIFFERENT.iter().find(|(listed, _)| *listed == source);
        let is_equal = result.as_deref().ok() == case[1].as_str();
        assert!(!is_equal || listed.is_none(), "{source:?} is no difference any more");
        if result.as_deref().ok() != listed.map_or(case[1].as_str(), |(_, printed)| *printed) {
            different.push(format!("{source:?}:\n  expected {}\n  got      {result:?}", case[1]));
        }
    }
    assert!(different.is_empty(), "{}\n{}", different.len(), different.join("\n"));
}

fn printed(source: &str) -> Result<String> {
    ChatTemplate::from_source(source)?.render(&[Message::user("Hi")], &ChatOptions::default())
}

/// Checks the listed differences with this part in their source.
fn listed(part: &str) {
    let found: Vec<_> = DIFFERENT.iter().filter(|(source, _)| source.contains(part)).collect();
    assert!(!found.is_empty(), "{part}");
    for (source, expected) in found {
        let messages = [Message::user("Hi"), Message::assistant("Yo")];
        let chat = ChatTemplate::from_source(*source).unwrap();
        assert_eq!(chat.render(&messages, &ChatOptions::default()).ok().as_deref(), *expected, "{source}");
    }
}

#[test]
fn macros_have_no_varargs_and_their_arguments_are_a_list() {
    listed("varargs");
    listed("m.arguments");
}

#[test]
fn ranges_and_items_are_lists() {
    listed("range");
    listed("items");
    assert_eq!(
        printed("{{ range(5)[-1] }}{% for k, v in {'a': 1}.items() %}{{ k }}{% endfor %}").unwrap(),
        "4a"
    );
}

#[test]
fn defaults_of_macros_may_name_variables_and_parameters() {
    let source = "{% set d = 'x' %}{% macro m(a, b=d ~ a, c=['y', b], e={'f': none}) %}{{ b }}{{ c }}{{ e }}{% endmacro %}";
    let calls = "{{ m(1) }} {{ m(1, c=2) }}";
    assert_eq!(printed(&format!("{source}{calls}")).unwrap(), "x1['y', 'x1']{'f': None} x12{'f': None}");
    let source = "{% macro m(a, b=1, c=a) %}{{ a }}{{ b }}{{ c }}{% endmacro %}{{ m(2) }}{{ m(2, c=3) }}";
    assert_eq!(printed(source).unwrap(), "212213");
}

#[test]
fn with_sets_one_name_after_the_other() {
    listed("{% with");
}

#[test]
fn a_text_marked_in_a_tag_escapes_what_is_added_to_it_and_other_operators_escape_nothing() {
    listed("is escaped");
    for (source, expected) in [
        // As functionary's template has it.
        (
            "{{ 'to '|safe + 'a \"b\" & c' + '\\n'|safe + {'a': '\"'}|tojson }}",
            "to a &#34;b&#34; &amp; c\n{&#34;a&#34;: &#34;\\&#34;&#34;}",
        ),
        ("{{ '<' + '&'|safe + '>' }}", "&lt;&&gt;"),
        ("{{ ('<'|safe + '>') ~ '<' }}", "<&gt;<"),
        ("{{ '<'|safe + ('>' ~ '<') }}", "<&gt;&lt;"),
        ("{{ 2 + ('<'|e|length) - 1 + 3 }}", "8"),
        ("{{ [1] + ['<'|safe] }}", "[1, Markup('<')]"),
        // Of another tag, or by another operator.
        ("{% set x = 'a'|safe %}{{ x + '<' }}", "a<"),
        ("{{ ('%s'|safe) % '<' }}", "<"),
    ] {
        assert_eq!(printed(source).unwrap(), expected, "{source}");
    }
    let message = printed("{{ '<'|safe + 1 }}").unwrap_err().to_string();
    assert!(message.contains("tried to use + operator on unsupported types string and number"), "{message}");
    assert_eq!(printed("{{ '<'|safe is escaped }}{{ '<'|e|e }}").unwrap(), "True&lt;");
}

#[test]
fn what_formatting_and_strings_lack_is_an_error() {
    for part in ["%r", "{0!r}", "{:%}", "{:{}}", "swapcase", "expandtabs"] {
        listed(part);
    }
    let message = printed("{{ 'aB'.swapcase() }}").unwrap_err().to_string();
    assert!(message.ends_with("line 1: a str has no method `swapcase`"), "{message}");
    let message = printed("{{ '%r' % 'a' }}").unwrap_err().to_string();
    assert!(message.contains("invalid conversion type 'r'"), "{message}");
}

#[test]
fn a_truth_value_and_its_number_are_one_key_of_a_dict() {
    assert_eq!(printed("{{ {1:2,true:3,none:4,1.5:5} }}").unwrap(), "{1: 3, None: 4, 1.5: 5}");
    assert_eq!(printed("{{ {true:2,1.0:3,false:4,0:5} }}").unwrap(), "{True: 3, False: 5}");
    assert_eq!(printed("{{ dict([(1, 2), (true, 3)]) }}").unwrap(), "{1: 3}");
    assert_eq!(printed("{{ {true: 'a'}[true] }}{{ {true: 'a'}[1] }}{{ 1 in {true: 2} }}").unwrap(), "aaTrue");
    assert_eq!(
        printed("{{ {1: 'a'}[true] }}{{ {0: 'a'}.get(false) }}{{ true in {1.0: 2} }}").unwrap(),
        "aaTrue"
    );
    assert_eq!(
        printed("{{ {(1, true): 1, (true, 1.0): 2, (1, 2): 3} }}").unwrap(),
        "{(1, True): 2, (1, 2): 3}"
    );
    assert_eq!(printed("{{ {(1, 0): 'a'}[(true, false)] }}{{ (1, 0) in {(1, 1): 2} }}").unwrap(), "aFalse");
}

#[test]
fn macros_may_be_within_each_other_eighty_times() {
    let source = "{% macro m(n) %}{% if n %}{{ m(n - 1) }}{% endif %}{% endmacro %}{{ m(DEPTH) }}";
    assert_eq!(printed(&source.replace("DEPTH", "80")).unwrap(), "");
    let message = printed(&source.replace("DEPTH", "100")).unwrap_err().to_string();
    assert!(message.ends_with("recursion limit exceeded"), "{message}");
}

#[test]
fn the_else_of_a_loop_is_for_an_empty_one_alone() {
    let source = "{% for i in [1, 2] %}{% continue %}{% else %}none{% endfor %}";
    assert_eq!(printed(source).unwrap(), "");
}

#[test]
fn namespaces_hold_data_alone() {
    let message = printed("{% set ns = namespace() %}{% set ns.x = ns %}").unwrap_err().to_string();
    assert!(message.contains("a namespace may hold texts, numbers, lists and dicts"), "{message}");
}

fn all_printed(cases: &[(&str, &str)]) {
    for (expression, expected) in cases {
        assert_eq!(
            printed(&format!("{{{{ {expression} }}}}")).as_deref().ok(),
            Some(*expected),
            "{expression}"
        );
    }
}

#[test]
fn texts_numbers_and_lists_are_pythons() {
    all_printed(&[
        ("' a  b c '.split()", "['a', 'b', 'c']"),
        ("' a  b c '.split(none, 1)", "['a', 'b c ']"),
        ("' a  b c '.rsplit(none, 1)", "[' a  b', 'c']"),
        ("'a-b-c'.rsplit('-', 1)", "['a-b', 'c']"),
        ("'a-b-c'.split('-', 0)", "['a-b-c']"),
        ("''.split('-')", "['']"),
        ("''.split()", "[]"),
        ("'a\\r\\nb\\rc\u{2028}d\\x0b\\n'.splitlines()", "['a', 'b', 'c', 'd', '']"),
        ("\"o'neil's x-ray ǆ ﬁn\".title()", "O'Neil'S X-Ray ǅ Fin"),
        ("'ﬁN ÉΣ'.capitalize()", "Fin éς"),
        ("'ab'.center(5, '*')", "**ab*"),
        ("'abc'.center(6, '*')", "*abc**"),
        ("[0.0001, 0.00001, 1.5e300, -0.0, 1e15]", "[0.0001, 1e-05, 1.5e+300, -0.0, 1000000000000000.0]"),
        (
            "['\\x7f\u{a0}\u{ad}\u{2028}\u{e000}', '\\'\"', 'é😀\u{301}']",
            "['\\x7f\\xa0\\xad\\u2028\\ue000', '\\'\"', 'é😀\u{301}']",
        ),
        ("[-7 // 2, -7 % 3, -7.5 // 2, 7.5 % -2, 4 / 2]", "[-4, 2, -4.0, -0.5, 2.0]"),
        ("[+1, - +2, -true, +true, 1 - -1, -4 % 2.0]", "[1, -2, -1, 1, 2, 0.0]"),
        ("1 + 2 * 3 ** 2 if not 1 in [2] and 'a' is not in 'b' else 0", "19"),
        ("[1 < 2 <= 2 != 3, 'a' 'b' ~ 1, (1, 2)[-1], 2 - 1 + 5 // 2 * 3 % 4]", "[True, 'ab1', 2, 3]"),
        (
            "[[2, 'a'], [1, 'b'], [2, 'c'], [1, 'd']]|sort(attribute=0)",
            "[[1, 'b'], [1, 'd'], [2, 'a'], [2, 'c']]",
        ),
        (
            "[9007199254740993, 9007199254740992.0, 1, true, -1.5]|sort",
            "[-1.5, 1, True, 9007199254740992.0, 9007199254740993]",
        ),
    ]);
    for nothing in [
        "10 ** 1000",
        "10.0 ** 400",
        "0 ** -1",
        "1 % 0",
        "1.0 / 0",
        "none - 1",
        "'a' * 2.0",
        "[1] + (1,)",
        "'abc'.strip(unknown)",
        "+'a'",
        "-'a'",
        "'a' is odd",
        "[1, 'a']|sort",
        "[none, none]|sort",
    ] {
        assert!(printed(&format!("{{{{ {nothing} }}}}")).is_err(), "{nothing}");
    }
}

#[test]
fn a_slice_of_nothing_is_empty_and_bounds_may_be_whole_floats() {
    all_printed(&[("none[1:]", "[]"), ("'abc'[1.0:]", "bc")]);
}

#[test]
fn slices_name_the_places_that_pythons_do() {
    // By counting: start, then on by step while before stop.
    let counted = |len: i64, start: Option<i64>, stop: Option<i64>, step: i64| {
        let index = |bound: i64| if bound < 0 { bound + len } else { bound };
        let mut out = Vec::new();
        let mut place = start.map_or(if step > 0 { 0 } else { len - 1 }, index);
        place = if step > 0 { place.max(0) } else { place.min(len - 1) };
        let end = stop.map(index);
        while (0..len).contains(&place) && end.is_none_or(|end| (place < end) == (step > 0) && place != end) {
            out.push(place.to_string());
            place += step;
        }
        format!("[{}]", out.join(", "))
    };
    let shown = |bound: Option<i64>| bound.map_or_else(String::new, |bound| bound.to_string());
    for start in (-7..8).map(Some).chain([None, Some(i64::MAX)]) {
        for stop in (-7..8).map(Some).chain([None, Some(i64::MAX)]) {
            let slices = (0..6).flat_map(|len| [-9, -3, -1, 1, 2, 9].map(|step| (len, step)));
            let template = slices.clone().map(|(len, step)| {
                format!("{{{{ (range({len})|list)[{}:{}:{step}] }}}}", shown(start), shown(stop))
            });
            let expected: String =
                slices.clone().map(|(len, step)| counted(len, start, stop, step)).collect();
            assert_eq!(printed(&template.collect::<String>()).unwrap(), expected, "{start:?} {stop:?}");
        }
    }
}

#[test]
fn long_conversations_are_within_the_budget() {
    let golden: Value = serde_json::from_slice(&std::fs::read(GOLDEN).unwrap()).unwrap();
    let text = "A word, \"another\" word.\n\n".repeat(20);
    let messages: Vec<Message> = (0..400)
        .map(|index| if index % 2 == 0 { Message::user(&*text) } else { Message::assistant(&*text) })
        .collect();
    for (family, template) in golden["templates"].as_object().unwrap() {
        let chat = ChatTemplate::from_source(template["source"].as_str().unwrap()).unwrap();
        if let Err(error) = chat.render(&messages, &ChatOptions::default()) {
            assert!(!error.to_string().contains("than a chat template may"), "{family}: {error}");
        }
    }
}
