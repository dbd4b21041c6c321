//! Each exit code, from a process that ends with it. The other files cover 0.

use std::ffi::OsString;
use std::io::{Read, Write};
use std::process::{Command, Stdio};

use super::support::{PROMPT, command, failure};

#[test]
fn wrong_arguments_are_named_and_exit_with_2() {
    for (arguments, named) in [
        (&["generate", "--bogus", PROMPT][..], "--bogus"),
        (&["generate", "--top-k", "many", PROMPT], "'many' for '--top-k <N>': it must be an integer"),
        (&["generate", "--threads", "0", PROMPT], "1 or more"),
        (&["generate", "--kv-cache-bytes", "99999999999T", PROMPT], "number of bytes"),
        (&["generate", "--do-sample", "--top-p", "-0.5", PROMPT], "`--top-p`"),
        (&["generate", "--max-new-tokens", "0", PROMPT], "`--max-new-tokens`"),
        (&["generate", "--num-return-sequences", "2", PROMPT], "`--num-return-sequences`"),
        (&["generate", "--model", "", PROMPT], "--model"),
        (&["tokenize", "--model", "", PROMPT], "--model"),
        (&["completions"], "<SHELL>"),
        (&["frobnicate"], "frobnicate"),
    ] {
        let (code, errors) = failure(arguments);
        assert_eq!(code, 2, "{arguments:?}: {errors}");
        assert!(errors.starts_with("rsgen: error: ") && errors.contains(named), "{arguments:?}: {errors}");
    }
}

#[test]
fn a_model_that_cannot_be_loaded_exits_with_3() {
    let folder = tempfile::tempdir().unwrap();
    let empty = folder.path().to_str().unwrap();
    for arguments in [
        &["generate", "--model", "/no/such/folder", PROMPT][..],
        &["generate", "--model", "nobody/nothing", PROMPT],
        &["generate", "--model", empty, PROMPT],
        &["score", "--model", "/no/such/folder", PROMPT],
        &["tokenize", "--model", empty, PROMPT],
        &["inspect", "/no/such/folder"],
        &["inspect", empty],
    ] {
        let (code, errors) = failure(arguments);
        assert_eq!(code, 3, "{arguments:?}: {errors}");
        assert!(errors.starts_with("rsgen: error: ") && errors.lines().count() == 1, "{errors}");
    }
}

#[test]
fn too_little_room_exits_with_4_and_too_long_a_prompt_with_1() {
    for subcommand in ["generate", "score"] {
        let (code, errors) = failure(&[subcommand, "--kv-cache-bytes", "1K", PROMPT]);
        assert_eq!(code, 4, "{errors}");
    }
    let (code, errors) = failure(&["generate", &"Once upon a time ".repeat(1000)]);
    assert_eq!(code, 1, "{errors}");
}

#[cfg(unix)]
#[test]
fn an_interrupt_ends_with_the_text_so_far_and_130() {
    for (options, header) in
        [(&["--do-sample", "--num-return-sequences=200"][..], "[1/200]\n"), (&["--num-beams=40"], "")]
    {
        interrupt_a_text(options, header);
    }
}

/// Interrupts a text of many tokens. It begins with `header` and the prompt.
#[cfg(unix)]
fn interrupt_a_text(options: &[&str], header: &str) {
    let length = ["--min-new-tokens=490", "--max-length=512", PROMPT];
    let mut child = command(&[&["generate"], options, &length].concat())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // The header, the prompt, and a few tokens of the first text.
    let mut text = vec![0; header.len() + PROMPT.len() + 16];
    let mut reader = child.stdout.take().unwrap();
    reader.read_exact(&mut text).unwrap();
    let killed = Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    assert!(killed.success());
    let sent = std::time::Instant::now();
    reader.read_to_end(&mut text).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(sent.elapsed().as_secs() < 3, "took {:?}", sent.elapsed());
    assert_eq!((output.status.code(), &*String::from_utf8_lossy(&output.stderr)), (Some(130), ""));
    let text = String::from_utf8(text).unwrap();
    assert!(text.starts_with(&format!("{header}{PROMPT}")) && text.ends_with('\n'), "{text}");
}

#[cfg(unix)]
#[test]
fn an_interrupted_score_ends_with_the_lines_so_far_and_130() {
    let mut child = command(&["score", "--json", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // What two lines begin with is scored once, so they differ from their first word on.
    let line = |number: u32| format!("{number} {}\n", "Once upon a time ".repeat(100));
    let lines: String = (0..400).map(line).collect();
    child.stdin.take().unwrap().write_all(lines.as_bytes()).unwrap();
    let mut reader = child.stdout.take().unwrap();
    let mut text = vec![0; 40];
    reader.read_exact(&mut text).unwrap();
    let killed = Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    assert!(killed.success());
    let sent = std::time::Instant::now();
    reader.read_to_end(&mut text).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(sent.elapsed().as_secs() < 3, "took {:?}", sent.elapsed());
    assert_eq!(output.status.code(), Some(130));
    let errors = String::from_utf8(output.stderr).unwrap();
    assert_eq!(
        errors,
        "{\"schema_version\":1,\"error\":{\"kind\":\"cancelled\",\"message\":\"interrupted\"}}\n"
    );
    assert!(text.ends_with(b"}\n"), "whole lines alone");
}

/// Makes this test run as the command, with a defect in it.
const DEFECT: &str = "RSGEN_TEST_DEFECT";

#[test]
fn a_defect_exits_with_70() {
    if let Some(option) = std::env::var_os(DEFECT) {
        let arguments = ["rsgen".into(), "score".into(), option, "x".into()];
        let arguments = arguments.into_iter().filter(|argument: &OsString| !argument.is_empty());
        std::process::exit(rsgen::cli::run(arguments, None, &mut || panic!("on purpose")));
    }
    for (option, ending) in [
        ("", "on purpose"),
        ("--json", "{\"schema_version\":1,\"error\":{\"kind\":\"internal\",\"message\":\"on purpose\"}}\n"),
    ] {
        let output = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "exit_codes::a_defect_exits_with_70", "--nocapture"])
            .env(DEFECT, option)
            .env_remove("RUST_BACKTRACE")
            .output()
            .unwrap();
        let errors = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(70), "{errors}");
        assert!(
            if option.is_empty() { errors.contains(ending) } else { errors.ends_with(ending) },
            "{errors}"
        );
    }
}
