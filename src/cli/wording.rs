//! Rewrites messages of the library for the shell: `do_sample=True` becomes `--do-sample`.

use rsgen_generation::GenerationConfig;

/// Names of options that are not fields of a configuration.
const OTHERS: [&str; 19] = [
    "num_threads",
    "kv_cache_bytes",
    "compute_dtype",
    "kv_dtype",
    "dtype",
    "chat_template",
    "host",
    "port",
    "api_key",
    "api_key_file",
    "insecure_no_auth",
    "allowed_hosts",
    "served_model_name",
    "max_requests",
    "max_queue",
    "max_requests_per_key",
    "max_connections",
    "queue_timeout",
    "grace",
];

/// Replaces the names of fields in a message by those of options, except where it is about the model's file.
pub(super) fn in_shell_words(message: &str) -> String {
    if message.contains("generation_config.json") {
        return message.to_owned();
    }
    let message = message.replace("; None ", "; leaving it out ");
    let mut words = String::with_capacity(message.len());
    let mut rest = message.as_str();
    while let Some(start) = rest.find(|letter: char| letter.is_ascii_lowercase()) {
        let (before, from) = rest.split_at(start);
        words.push_str(before);
        let is_in_name = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
        let end = from.find(|letter| !is_in_name(letter)).unwrap_or(from.len());
        let (name, after) = from.split_at(end);
        rest = after;
        let is_option = GenerationConfig::is_field(name) || OTHERS.contains(&name);
        let previous = words.chars().next_back();
        let begins_word = previous.is_none_or(|letter| [' ', '`', '('].contains(&letter));
        let ends_word = after.chars().next().is_none_or(|letter| " ,;:.)`".contains(letter));
        // Some names are also words, such as `seed`.
        let is_marked = name.contains('_') || previous == Some('`') && after.starts_with('`');
        match after.strip_prefix('=') {
            Some(value) if is_option && begins_word => {
                let end = value.find([' ', ',', ';', ')', '`']).unwrap_or(value.len());
                let (value, after) = value.split_at(end);
                rest = after;
                words.push_str(&option(name));
                match value {
                    "True" => {}
                    "False" => words.push_str("=false"),
                    value => words.extend([" ", value]),
                }
            }
            None if is_option && begins_word && ends_word && is_marked => words.push_str(&option(name)),
            _ => words.push_str(name),
        }
    }
    words + rest
}

fn option(name: &str) -> String {
    format!("--{}", name.replace('_', "-"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_become_options_and_other_words_stay() {
        for (message, expected) in [
            (
                "`top_p` must be 1; None leaves it unset",
                "`--top-p` must be 1; leaving it out leaves it unset",
            ),
            ("set do_sample=True to sample", "set --do-sample to sample"),
            ("set num_beams=4, or return fewer", "set --num-beams 4, or return fewer"),
            ("because do_sample is not set", "because --do-sample is not set"),
            ("set use_cache=False again", "set --use-cache=false again"),
            ("one seed for `seed`", "one seed for `--seed`"),
            ("/models/top_p/x and my_top_p", "/models/top_p/x and my_top_p"),
            (
                "the model's generation_config.json: `top_p` is 7",
                "the model's generation_config.json: `top_p` is 7",
            ),
            ("Grüße, Bär: `top_k`", "Grüße, Bär: `--top-k`"),
        ] {
            assert_eq!(in_shell_words(message), expected, "{message}");
        }
    }
}
