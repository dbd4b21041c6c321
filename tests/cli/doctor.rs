//! `rsgen doctor`: what is chosen, and the reasons.

use std::process::Command;

use serde_json::{Value, json};

use super::support::{command, json_of, keys, only_object, quiet_stdout, run_with, stdout};

fn doctor(variables: &[(&str, &str)], arguments: &[&str]) -> Value {
    only_object(&quiet_stdout(&run_with(variables, &[&["doctor", "--json"], arguments].concat())))
}

#[test]
fn json_has_a_field_for_each_choice() {
    let report = json_of(&["doctor", "--json"]);
    let fields = [
        "schema_version",
        "version",
        "features",
        "architecture",
        "system",
        "isa",
        "num_threads",
        "memory",
        "kv_cache_bytes",
        "hub_cache",
        "environment",
        "model",
    ];
    assert_eq!(keys(&report), fields);
    assert_eq!(report["version"], env!("CARGO_PKG_VERSION"));
    for feature in ["bundled", "cli", "serve"] {
        assert!(report["features"].as_array().unwrap().contains(&json!(feature)), "{feature}");
    }
    assert_eq!(keys(&report["isa"]), ["value", "reason", "available"]);
    assert_eq!(keys(&report["kv_cache_bytes"]), ["value", "reason"]);
    assert_eq!(keys(&report["environment"]), ["variables", "unknown_variables"]);
    let model = ["name", "reason", "fits", "obstacle", "weight_bytes", "kv_cache_bytes", "kv_cache_tokens"];
    assert_eq!(keys(&report["model"]), model);
    let model = &report["model"];
    assert_eq!((&model["name"], &model["reason"]), (&json!("story-3m"), &json!("bundled")));
    assert_eq!((&model["fits"], &model["weight_bytes"]), (&json!(true), &json!(2 * 2_828_736)));
    // A block of 32 tokens: 6 layers of K and V, 3 heads of 32 dimensions in 4 bytes.
    let blocks = model["kv_cache_bytes"]["value"].as_u64().unwrap() / (32 * 6 * 2 * 3 * 32 * 4);
    assert_eq!(model["kv_cache_tokens"], 32 * blocks);
}

#[test]
fn the_page_names_every_choice_with_its_reason() {
    let page = stdout(&["doctor"]);
    let names = [
        "rsgen",
        "instructions",
        "threads",
        "memory",
        "KV cache",
        "Hub cache",
        "environment",
        "model",
        "fits",
    ];
    assert_eq!(page.lines().count(), names.len(), "{page}");
    for (line, name) in page.lines().zip(names) {
        assert!(line.starts_with(name) && line.as_bytes()[14] != b' ', "{line}");
    }
}

#[test]
fn the_number_of_threads_comes_with_the_rule_that_gave_it() {
    let all = [("RAYON_NUM_THREADS", "4"), ("OMP_NUM_THREADS", "3"), ("RSGEN_NUM_THREADS", "2")];
    assert_eq!(
        doctor(&all, &["--num-threads", "1"])["num_threads"],
        json!({"value": 1, "reason": "argument"})
    );
    for (first, number) in [2, 3, 4].into_iter().enumerate() {
        let variables = &[&all[..3 - first], &[("RSGEN_MODEL", "")]].concat();
        let expected = json!({"value": number, "reason": "environment", "variable": all[2 - first].0});
        // Where that is more than the cores, standard error warns.
        let report = run_with(variables, &["doctor", "--json"]).stdout;
        assert_eq!(only_object(&String::from_utf8(report).unwrap())["num_threads"], expected);
    }
    let many = run_with(&[("RSGEN_NUM_THREADS", "1000")], &["doctor"]);
    let warning = String::from_utf8(many.stderr).unwrap();
    assert!(warning.contains("warning: `RSGEN_NUM_THREADS` asks for 1000 threads, but"), "{warning}");
    // Many more threads than cores would wait for each other for minutes.
    let words: Vec<&str> = warning.split(&[' ', ';'][..]).collect();
    let number = |before: &str| {
        let place = words.iter().position(|word| *word == before).unwrap();
        words[place + 1].parse::<usize>().unwrap()
    };
    assert!(number("gets") <= 32 * number("use"), "{warning}");
    let output = run_with(&[], &["generate", "--threads=1000", "--max-new-tokens=2", "One day"]);
    assert_eq!(output.status.code(), Some(0));
    let found = doctor(&[], &[])["num_threads"].clone();
    assert!(["cores", "affinity", "quota"].contains(&found["reason"].as_str().unwrap()), "{found}");
}

#[cfg(target_os = "linux")]
#[test]
fn fewer_cores_for_the_process_mean_fewer_threads() {
    let cores = std::fs::read_to_string("/sys/devices/system/cpu/online").unwrap_or_default();
    let tasks = Command::new("taskset").args(["--version"]).output();
    if tasks.is_err() || cores.trim() == "0" {
        println!("there is no taskset, or only one core: nothing is compared");
        return;
    }
    let plain = command(&["doctor", "--json"]);
    let allowed =
        Command::new("sh").args(["-c", "taskset -cp $$ | sed 's/.*: //; s/[,-].*//'"]).output().unwrap();
    let mut limited = Command::new("taskset");
    limited.args(["-c", String::from_utf8(allowed.stdout).unwrap().trim()]).arg(plain.get_program());
    limited.args(plain.get_args());
    for (name, value) in plain.get_envs() {
        match value {
            Some(value) => limited.env(name, value),
            None => limited.env_remove(name),
        };
    }
    limited.env_remove("OMP_NUM_THREADS").env_remove("RAYON_NUM_THREADS");
    let report = only_object(&quiet_stdout(&limited.output().unwrap()));
    assert_eq!(report["num_threads"], json!({"value": 1, "reason": "affinity"}));
}

#[test]
fn the_instruction_set_comes_with_the_rule_that_chose_it() {
    let expected = json!({"value": "scalar", "reason": "environment", "variable": "RSGEN_ISA"});
    let named = doctor(&[("RSGEN_ISA", "scalar")], &[])["isa"].clone();
    for (field, value) in expected.as_object().unwrap() {
        assert_eq!(&named[field], value);
    }
    let fastest = doctor(&[("RSGEN_ISA", "")], &[])["isa"].clone();
    assert_eq!((&fastest["value"], &fastest["reason"]), (&fastest["available"][0], &json!("fastest")));
    let available = fastest["available"].as_array().unwrap();
    assert_eq!(available.last(), Some(&json!("scalar")));
}

#[test]
fn the_model_cache_comes_with_the_variable_that_names_it() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("models--org--name")).unwrap();
    let path = folder.path().to_str().unwrap();
    let cache = doctor(&[("HF_HUB_CACHE", path)], &[])["hub_cache"].clone();
    let expected = json!({"value": path, "reason": "environment", "variable": "HF_HUB_CACHE", "exists": true,
                          "models": ["org/name"]});
    assert_eq!(cache, expected);
}

#[test]
fn names_that_nothing_reads_are_pointed_out_and_no_value_is_shown() {
    let variables = [
        ("RSGEN_TOPP", "secret-1"),
        ("RSGEN_TOP_P", "0.5"),
        ("RSGEN_NUM_THREADS", "1"),
        ("RSGEN_API_KEY", "secret-2"),
        ("RSGEN_MAX_REQUESTS", "3"),
    ];
    let environment = doctor(&variables, &[])["environment"].clone();
    let has = |list: &str, name: &str| environment[list].as_array().unwrap().contains(&json!(name));
    assert!(variables.iter().all(|(name, _)| has("variables", name)), "{environment}");
    assert_eq!(environment["unknown_variables"], json!(["RSGEN_TOPP"]));
    let page = quiet_stdout(&run_with(&variables, &["doctor"]));
    assert!(page.contains("RSGEN_TOPP: unknown variable") && !page.contains("secret"), "{page}");
}

#[test]
fn a_model_that_cannot_be_loaded_or_does_not_fit_is_said_and_exits_as_opening_it_would() {
    let folder = tempfile::tempdir().unwrap();
    let empty = folder.path().to_str().unwrap();
    for (arguments, code, said) in [
        (&["doctor", "/no/such/folder"][..], 3, "there is no folder"),
        (&["doctor", empty], 3, "config.json is missing"),
        (&["doctor", "--kv-cache-bytes", "1K"], 4, "at least one block"),
        (&["doctor", "--kv-cache-bytes", "9000T"], 4, "bytes of memory that are available"),
    ] {
        let output = run_with(&[], &[arguments, &["--json"]].concat());
        assert_eq!(output.status.code(), Some(code), "{arguments:?}");
        let report = only_object(&String::from_utf8(output.stdout).unwrap());
        assert_eq!(report["model"]["fits"], false);
        let error = only_object(&String::from_utf8(output.stderr).unwrap());
        let message = error["error"]["message"].as_str().unwrap();
        assert!(message.contains(said), "{message}");
        assert_eq!(report["model"]["obstacle"], message);
    }
    let output = run_with(&[("RSGEN_MODEL", "nobody/nothing")], &["doctor"]);
    let page = String::from_utf8(output.stdout).unwrap();
    assert!(
        page.contains("nobody/nothing: named by RSGEN_MODEL") && page.contains("fits          no: "),
        "{page}"
    );
    assert_eq!(output.status.code(), Some(3));
}
