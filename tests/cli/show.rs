//! `rsgen show`, and the pictures of `rsgen generate`.

use super::support::{PROMPT, command, failure_of, quiet_stdout, run_with, stdout, with_stdin};

const BEAMS: [&str; 4] = ["generate", "--num-beams=3", "--max-new-tokens=8", PROMPT];

/// The picture of a trace is the one that was drawn at once.
#[test]
fn a_trace_is_drawn_as_it_would_have_been_at_once() {
    for (fields, view) in [
        (&["--do-sample", "--seed=3", "--top-k=3"][..], "--show-probs"),
        (&["--num-beams=3", "--num-return-sequences=2"], "--show-beams"),
        (&["--assistant=draft", "--num-assistant-tokens=3"], "--show-draft"),
    ] {
        let call = [&["generate", "--max-new-tokens=8", PROMPT][..], fields].concat();
        let drawn = stdout(&[&call[..], &[view]].concat());
        assert!(drawn.lines().count() > 4 && !drawn.contains('\x1b'), "{drawn}");
        let trace = stdout(&[&call[..], &["--json", "--output-events"]].concat());
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("trace.json");
        std::fs::write(&file, &trace).unwrap();
        let file = file.to_str().unwrap();
        assert_eq!(stdout(&["show", file, view]), drawn);
        assert!(stdout(&["show", file]).contains(&drawn), "all views that there are");
        assert_eq!(quiet_stdout(&with_stdin(&["show", view, "-"], trace.as_bytes())), drawn);
        let html = stdout(&["show", "--html", file]);
        assert!(html.starts_with("<!doctype html>") && !html.contains("<script"), "{html}");
    }
}

#[test]
fn pictures_fit_80_columns_and_the_locale() {
    for (locale, is_ascii) in [("C", true), ("de_DE.ISO-8859-1", true), ("C.UTF-8", false)] {
        let drawn = quiet_stdout(&run_with(&[("LC_ALL", locale)], &[&BEAMS[..], &["--show-beams"]].concat()));
        assert_eq!(drawn.is_ascii(), is_ascii, "{drawn}");
        assert!(drawn.lines().all(|line| line.chars().count() <= 80), "{drawn}");
    }
}

#[test]
fn what_is_no_trace_is_refused_with_its_reason() {
    let output = with_stdin(&["show", "-"], b"{\"schema_version\": 9}");
    let (code, errors) = failure_of(&output);
    assert_eq!(code, 1);
    assert!(errors.contains("`schema_version` 9"), "{errors}");
    let (_, errors) = failure_of(&with_stdin(&["show", "-"], b"[]"));
    assert!(errors.contains("this is no trace"), "{errors}");
    let (_, errors) = failure_of(&command(&["show", "/nowhere.json"]).output().unwrap());
    assert!(errors.contains("cannot be read"), "{errors}");
    let lines = with_stdin(&["generate", "--show-probs", "--prompts", "-"], b"One\nTwo\n");
    assert_eq!(failure_of(&lines).0, 2);
}
