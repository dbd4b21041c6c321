//! Messages of the library in the words of the shell: `do_sample=true` is `--do-sample` there.

use super::environment::option;
use rsgen_core::{Error, Mention, Message, Origin};
use rsgen_generation::GenerationConfig;

/// An error as the shell tells it. The fields of a model's file stay as they are there.
pub(super) fn told(error: &Error) -> String {
    match error.origin() {
        Some(Origin::ModelFile(_)) => error.to_string(),
        _ => error.in_words(&words),
    }
}

/// A warning as the shell tells it.
pub(super) fn warning(message: &Message) -> String {
    message.in_words(&words)
}

/// The description of a field, whose own marks around names become options. The options are made with it.
pub(super) fn described(doc: &str) -> String {
    let option = |part: &str| format!("--{}", part.replace('_', "-"));
    let word = |part| if GenerationConfig::is_field(part) { option(part) } else { String::from(part) };
    doc.split('`').map(word).collect()
}

fn words(mention: &Mention) -> String {
    match mention {
        Mention::Name(name) => option(name).map_or_else(|| mention.plain(), |option| format!("`{option}`")),
        Mention::Setting(name, value) => match (option(name), value.as_str()) {
            (None, _) => mention.plain(),
            (Some(option), "true") => option.to_owned(),
            (Some(option), "false") => format!("{option}=false"),
            (Some(option), value) => format!("{option} {value}"),
        },
        _ => mention.plain(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rsgen_core::message;

    #[test]
    fn fields_become_options_and_other_words_stay() {
        let path = "/models/top_p/x and `top_p`";
        for (message, expected) in [
            (
                message!({top_p} " must be 1; " {None} " leaves it unset"),
                "`--top-p` must be 1; leaving it out leaves it unset",
            ),
            (message!("set " {do_sample = true} " to sample"), "set --do-sample to sample"),
            (message!("set " {num_beams = 4} ", or return fewer"), "set --num-beams 4, or return fewer"),
            (message!("set " {use_cache = false} " again"), "set --use-cache=false again"),
            (message!("one seed for " {seed}), "one seed for `--seed`"),
            (message!("{path}"), path),
            (
                message!({output_attentions} " and " {nothing_known}),
                "`output_attentions` and `nothing_known`",
            ),
        ] {
            assert_eq!(warning(&message), expected, "{message}");
        }
        let error = Error::config("is 7").about("top_p");
        assert_eq!(told(&error), "`--top-p` is 7");
        let error = error.from_origin(Origin::ModelFile("generation_config.json"));
        assert_eq!(told(&error), "the model's generation_config.json: `top_p` is 7");
    }

    #[test]
    fn descriptions_name_options() {
        assert_eq!(described("Beside `top_p`, unless `\"never\"`"), "Beside --top-p, unless \"never\"");
        for field in GenerationConfig::FIELDS {
            assert!(!described(field.doc).contains('`'), "{}", field.doc);
        }
    }
}
