//! `rsgen completions`: scripts for shells.

use super::support::{SUBCOMMANDS, failure, json_of, keys, stdout};

#[test]
fn every_shell_has_a_script_that_knows_the_subcommands_and_their_options() {
    for shell in ["bash", "zsh", "fish", "powershell", "elvish"] {
        let script = stdout(&["completions", shell]);
        for word in SUBCOMMANDS.into_iter().chain(["rsgen", "kv-cache-bytes", "no-special-tokens"]) {
            assert!(script.contains(word), "{shell}: {word}");
        }
        let object = json_of(&["completions", "--json", shell]);
        assert_eq!(keys(&object), ["schema_version", "shell", "script"]);
        assert_eq!((object["shell"].as_str(), object["script"].as_str()), (Some(shell), Some(&*script)));
    }
    let (code, errors) = failure(&["completions", "tcsh"]);
    assert!(code == 2 && errors.contains("tcsh"), "{errors}");
}

#[cfg(unix)]
#[test]
fn bash_completes_options_with_the_script() {
    let script = stdout(&["completions", "bash"]);
    let program = format!(
        "{script}\nCOMP_WORDS=(rsgen score --no-sp); COMP_CWORD=2; _rsgen rsgen --no-sp score; echo \"${{COMPREPLY[@]}}\""
    );
    let Ok(output) = std::process::Command::new("bash").args(["--norc", "-c", &program]).output() else {
        println!("bash is not there: nothing is completed");
        return;
    };
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "--no-special-tokens\n");
}
