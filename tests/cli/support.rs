//! Runs the command and checks its output.

use std::io::Write;
use std::process::{Command, Output, Stdio};

use serde_json::Value;

pub(crate) const PROMPT: &str = "Once upon a time";

/// The subcommands that the command has.
pub(crate) const SUBCOMMANDS: [&str; 15] = [
    "generate",
    "chat",
    "serve",
    "run-batch",
    "pack",
    "convert",
    "score",
    "translate",
    "detect",
    "show",
    "tokenize",
    "inspect",
    "doctor",
    "bench",
    "completions",
];

/// A shell that runs the tests in the background has them, and all that they start, ignore Ctrl-C. A process with a handler of
/// its own starts others that do not.
#[cfg(unix)]
fn end_at_ctrl_c() {
    use signal_hook::{consts::SIGINT, flag::register_conditional_shutdown};
    static HANDLER: std::sync::Once = std::sync::Once::new();
    HANDLER.call_once(|| {
        register_conditional_shutdown(SIGINT, 130, std::sync::Arc::new(true.into())).unwrap();
    });
}

#[cfg(not(unix))]
fn end_at_ctrl_c() {}

/// The command, without the variables of the test environment.
pub(crate) fn command(arguments: &[&str]) -> Command {
    end_at_ctrl_c();
    let mut command = Command::new(env!("CARGO_BIN_EXE_rsgen"));
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("RSGEN_") && name != "RSGEN_ISA" {
            command.env_remove(name);
        }
    }
    command.args(arguments).env("COLUMNS", "80").env_remove("HF_HOME").stdin(Stdio::null());
    command
}

/// Runs the command with environment variables.
pub(crate) fn run_with(variables: &[(&str, &str)], arguments: &[&str]) -> Output {
    command(arguments).envs(variables.iter().copied()).output().unwrap()
}

/// Standard output of a successful run without standard error.
pub(crate) fn stdout(arguments: &[&str]) -> String {
    quiet_stdout(&run_with(&[], arguments))
}

pub(crate) fn quiet_stdout(output: &Output) -> String {
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!((output.status.code(), &*errors), (Some(0), ""));
    String::from_utf8(output.stdout.clone()).unwrap()
}

pub(crate) fn json_of(arguments: &[&str]) -> Value {
    only_object(&stdout(arguments))
}

/// The one object on one line that a text is.
pub(crate) fn only_object(text: &str) -> Value {
    assert_eq!(text.matches('\n').count(), 1, "one line: {text}");
    let object: Value = serde_json::from_str(text).unwrap();
    assert_eq!(object["schema_version"], 1, "{object}");
    object
}

/// The names of an object's fields, in their order.
pub(crate) fn keys(object: &Value) -> Vec<&str> {
    object.as_object().unwrap().keys().map(String::as_str).collect()
}

/// Exit code and standard error of a run that writes nothing to standard output.
pub(crate) fn failure(arguments: &[&str]) -> (i32, String) {
    failure_of(&run_with(&[], arguments))
}

pub(crate) fn failure_of(output: &Output) -> (i32, String) {
    assert_eq!(String::from_utf8_lossy(&output.stdout), "");
    (output.status.code().unwrap(), String::from_utf8(output.stderr.clone()).unwrap())
}

pub(crate) fn with_stdin(arguments: &[&str], input: &[u8]) -> Output {
    let mut child = command(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // A command that fails early does not read it.
    let _ = child.stdin.take().unwrap().write_all(input);
    child.wait_with_output().unwrap()
}
