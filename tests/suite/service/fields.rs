//! Walks the table of fields: what it says of each holds in the shell, in the API and in Python.

use std::collections::HashMap;

use rsgen::generation::GenerationConfig;
use rsgen::generation::config::{FieldKind, Heading};
use serde_json::{Value, json};

use super::{PROMPT, Service, agent, options};

const GENERATE: &str = "/rsgen/v1/generate";

/// The heading of each option in the long help.
#[cfg(feature = "cli")]
fn headings() -> HashMap<String, String> {
    let help = std::process::Command::new(env!("CARGO_BIN_EXE_rsgen"))
        .args(["generate", "--help"])
        .output()
        .unwrap();
    let mut headings = HashMap::new();
    let mut heading = "";
    let help = String::from_utf8(help.stdout).unwrap();
    for line in help.lines() {
        if let Some(title) = line.strip_suffix(':').filter(|title| !title.starts_with(' ')) {
            heading = title;
        } else if let Some(option) = line.trim_start().strip_prefix("--") {
            let end = option.find([' ', '[']).unwrap_or(option.len());
            headings.insert(option[..end].replace('-', "_"), heading.to_owned());
        }
    }
    headings
}

/// Values just outside of a range.
fn beyond(kind: FieldKind) -> Vec<Value> {
    match kind {
        FieldKind::Int(least, most) => {
            [least - 1, most + 1].map(|value| serde_json::from_str(&value.to_string()).unwrap()).to_vec()
        }
        FieldKind::Float(least, most) => vec![json!(least - 0.001), json!(most * 1.001 + 0.001)],
        FieldKind::Word(_) => vec![json!("none of them")],
        FieldKind::Bool => vec![json!(1)],
        FieldKind::OneOrMany(kind, most) => {
            let many = (most < 1000).then(|| vec!["a"; most + 1].into());
            beyond(*kind).into_iter().chain(many).collect()
        }
        FieldKind::Text(1, _) => vec![json!("")],
        FieldKind::Text(..) | FieldKind::Object => vec![json!(5)],
        FieldKind::Id => vec![json!(-1)],
        FieldKind::Map(..) => vec![json!({ "7": 1000 })],
        FieldKind::Described(_, kind) => beyond(*kind),
        _ => vec![json!(1.5)],
    }
}

#[test]
fn each_field_is_an_option_under_its_heading_and_has_its_range_in_the_api_and_its_type_in_python() {
    #[cfg(feature = "cli")]
    let headings = headings();
    let types = concat!(env!("CARGO_MANIFEST_DIR"), "/python/rsgen/types.py");
    let types = std::fs::read_to_string(types).unwrap();
    let service = Service::bundled(options());
    let (_, description) = service.get("/openapi.json", &[]);
    let description: Value = serde_json::from_str(&description).unwrap();
    let body = &description["paths"][GENERATE]["post"]["requestBody"]["content"]["application/json"];
    let last = service.generator.engine().model().vocab_size() - 1;
    for info in GenerationConfig::FIELDS {
        let name = info.name;
        #[cfg(feature = "cli")]
        match info.heading {
            Heading::Arrays | Heading::Accepted => assert!(!headings.contains_key(name), "{name}"),
            heading => assert_eq!(headings.get(name).map(String::as_str), Some(heading.as_str()), "{name}"),
        }
        let mut accepted = info.kind.python().replace("list[", "Sequence[");
        // Anything that is an index is an integer there, but for keys and nested lists, as in `make_stubs.py`.
        if !accepted.contains("dict[") && accepted.matches("Sequence[").count() < 2 {
            accepted = accepted.replace("int", "SupportsIndex");
        }
        assert!(types.contains(&format!("\n    {name}: {accepted} | None\n")), "{name}");
        // What the API takes as a seed is an integer of 64 bits with a sign.
        if name == "seed" {
            continue;
        }
        let mut property = body["schema"]["properties"][name].clone();
        let words = property.as_object_mut().unwrap().remove("description").unwrap();
        assert!(words.as_str().unwrap().contains(info.doc.trim()), "{name}: {words}");
        assert_eq!(property, info.served.schema(last), "{name}");
        for value in beyond(info.served) {
            let request = json!({ "prompt": PROMPT, name: value });
            let request = request.to_string();
            let url = format!("{}{GENERATE}", service.url);
            let answer = agent().post(url).header("content-type", "application/json").send(request).unwrap();
            let status = answer.status().as_u16();
            let answer: Value = serde_json::from_reader(answer.into_body().into_reader()).unwrap();
            assert_eq!((status, &answer["error"]["param"]), (400, &json!(name)), "{value}: {answer}");
            let message = answer["error"]["message"].as_str().unwrap();
            assert!(message.contains(&info.served.describe()), "{name}: {message}");
        }
    }
}

#[test]
fn an_error_of_a_list_of_prompts_names_the_prompt() {
    let service = Service::bundled(options());
    let long = "a ".repeat(5000);
    for prompts in [json!(["One day", long]), json!([[1, 2], [3, 1_000_000]]), json!([[1, 2], vec![5; 5000]])]
    {
        let mut response = service.post(&json!({ "prompt": prompts, "max_tokens": 2 }));
        assert_eq!(response.status(), 400);
        let error: Value = serde_json::from_str(&response.body_mut().read_to_string().unwrap()).unwrap();
        let message = error["error"]["message"].as_str().unwrap();
        assert!(message.starts_with("prompt 1: "), "{message}");
    }
}
