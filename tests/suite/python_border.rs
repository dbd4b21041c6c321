//! Every function that Python can call runs inside `guarded`, so that a panic reaches Python as an `InternalError`.
//!
//! The sources are read, because a function that forgets it works as well as the others until it panics. Fields that
//! PyO3 reads by itself (`get_all`, `eq`) have no code of ours.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use crate::rust_source::{test_code, tokens};

/// What makes an exception of a panic.
const GUARD: &str = "guarded";

type Tokens<'a> = [(usize, &'a str)];

#[test]
fn every_exported_function_is_guarded() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/python");
    let mut sources = Vec::new();
    for entry in fs::read_dir(folder).expect("the folder of the extension") {
        let path = entry.expect("a readable folder").path();
        let source = fs::read_to_string(&path).expect("a readable file");
        let without_tests = source.len() - test_code(&path.to_string_lossy(), &source).len();
        sources.push((path.display().to_string(), source[..without_tests].to_owned()));
    }
    let (exported, faults) = check(&sources);
    assert!(exported > 60, "only {exported} exported functions found: does the rule look elsewhere?");
    assert!(faults.is_empty(), "not guarded:\n{}", faults.join("\n"));
}

/// The number of exported functions, and those that neither are guarded nor leave all to one that is.
fn check(sources: &[(String, String)]) -> (usize, Vec<String>) {
    let sources: Vec<_> = sources.iter().map(|(path, source)| (path, tokens(source))).collect();
    let is_guarded = |body: &Tokens<'_>| body.iter().any(|token| token.1 == GUARD);
    let mut guards = BTreeSet::from([GUARD]);
    for (_, tokens) in &sources {
        guards.extend(functions(tokens).filter(|(_, body)| is_guarded(body)).map(|(name, _)| name.1));
    }
    let (mut exported, mut faults) = (0, Vec::new());
    for (path, tokens) in &sources {
        for ((line, name), body) in exported_functions(tokens) {
            exported += 1;
            let own = body.iter().filter(|token| token.1 != name);
            if !own.into_iter().any(|token| guards.contains(token.1)) {
                faults.push(format!("{path}:{line}: `{name}`"));
            }
        }
    }
    (exported, faults)
}

/// The functions between attributes that export them, and the closures that are made into functions of Python's.
fn exported_functions<'a, 't>(tokens: &'t Tokens<'a>) -> Vec<((usize, &'a str), &'t Tokens<'a>)> {
    let mut found = Vec::new();
    for (index, &(line, name)) in tokens.iter().enumerate() {
        let rest = &tokens[index..];
        match name {
            "pymethods" => found.extend(functions(block(rest))),
            "pyfunction" => found.extend(functions(rest).take(1)),
            "new_closure" => found.push(((line, name), block(rest))),
            _ => {}
        }
    }
    found
}

/// The functions with a body, each with its name and its body.
fn functions<'a, 't>(tokens: &'t Tokens<'a>) -> impl Iterator<Item = ((usize, &'a str), &'t Tokens<'a>)> {
    let starts = tokens.iter().enumerate().filter(|(_, token)| token.1 == "fn");
    starts.filter_map(|(index, _)| Some((*tokens.get(index + 1)?, block(&tokens[index..]))))
}

/// What stands in the next pair of braces.
fn block<'a, 't>(tokens: &'t Tokens<'a>) -> &'t Tokens<'a> {
    let Some(open) = tokens.iter().position(|token| token.1 == "{") else { return &[] };
    let mut depth = 0;
    for (index, token) in tokens.iter().enumerate().skip(open) {
        depth += i32::from(token.1 == "{") - i32::from(token.1 == "}");
        if depth == 0 {
            return &tokens[open + 1..index];
        }
    }
    &tokens[open + 1..]
}

#[test]
fn what_is_not_guarded_is_found() {
    let faults = |source: &str| check(&[("x.rs".to_owned(), source.to_owned())]).1;
    let class =
        |methods: &str| format!("fn plain() {{ 1 }} #[pymethods] impl A {{ {methods} }} fn other() {{}}");
    assert_eq!(faults(&class("fn a(&self) -> PyResult<u8> { guarded(|| Ok(1)) }")), [""; 0]);
    assert_eq!(faults(&class("fn a() { guarded(|| {}) } fn b(&self) -> u8 { 1 }")), ["x.rs:1: `b`"]);
    assert_eq!(faults(&class("fn a() { self.plain() }")).len(), 1);
    let delegate =
        "impl A { fn run(&self) { guarded(|| {}) } } #[pymethods] impl A { fn a(&self) { self.run() } }";
    assert_eq!(faults(delegate), [""; 0]);
    assert_eq!(faults("#[pyfunction]\n#[pyo3(name = \"b\")]\nfn a() { 1 }"), ["x.rs:3: `a`"]);
    assert_eq!(faults("let f = PyCFunction::new_closure(py, None, None, |a| { Ok(a) });").len(), 1);
    assert_eq!(faults("// #[pymethods]\nfn a() {}"), [""; 0]);
}
