//! Environment variables as a second source of options: what all options share, and the source of each value.
//!
//! Each option names its variable in `args`, or in the file of its subcommand. An empty variable counts as
//! absent, and the command line takes precedence over the environment.

use std::any::TypeId;
use std::collections::BTreeMap;
use std::env::var_os;
use std::ffi::OsString;
use std::sync::LazyLock;

use clap::builder::{BoolishValueParser, Resettable, Str, TypedValueParser as _};
use clap::error::{ContextKind, ContextValue};
use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches, Command, CommandFactory, FromArgMatches};

use super::args::Arguments;
use rsgen_core::{Error, ErrorKind, Origin};
use rsgen_generation::config::suggest;

/// The prefix of all variables.
const PREFIX: &str = "RSGEN_";

/// The variables that the library itself reads, for all callers.
pub(super) const LIBRARY_VARIABLES: [&str; 3] = ["RSGEN_ISA", "RSGEN_NUM_THREADS", "RSGEN_TIMING"];

/// The command with all subcommands and options, as help, completions and documentation show it.
pub(super) fn command() -> Command {
    // The name is fixed, so that help is the same however Python starts the program.
    let command = Arguments::command().no_binary_name(true).bin_name("rsgen");
    each_argument(command, |arg| documented(switch(arg)))
}

/// Parses the command line, whose first argument is the program's name, and the environment.
pub(super) fn parse(line: &[OsString]) -> Result<(Arguments, Origins), clap::Error> {
    let line = line.get(1..).unwrap_or_default();
    let tree = command();
    let mut command =
        each_argument(tree.clone(), |arg| if is_read(&arg) { arg } else { without_variable(arg) });
    let parsed = command.try_get_matches_from_mut(line).and_then(|matches| {
        let arguments = Arguments::from_arg_matches(&matches).map_err(|error| error.format(&mut command))?;
        Ok((arguments, Origins::of(&tree, &matches)))
    });
    parsed.map_err(|mut error| {
        if let Some(variable) = variable_behind(&error, tree, line) {
            let tip = format!("the value comes from the environment variable {variable}");
            error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![tip.into()]));
        }
        error
    })
}

/// Whether errors are written as JSON: known before the command line is parsed, and even if it is invalid.
pub(super) fn asks_for_json(line: &[OsString]) -> bool {
    let options =
        line.iter().skip(1).take_while(|argument| *argument != "--").filter_map(|option| option.to_str());
    let given = options.filter_map(|option| match option.strip_prefix("--json")? {
        "" => Some(true),
        value => Some(is_true(value.strip_prefix('=')?)),
    });
    given.last().unwrap_or_else(|| {
        var_os("RSGEN_JSON").and_then(|value| value.into_string().ok()).is_some_and(|value| is_true(&value))
    })
}

/// The options whose values come from the environment.
#[derive(Debug, Default)]
pub(super) struct Origins {
    /// The names of fields and variables.
    variables: Vec<(String, String)>,
}

impl Origins {
    fn of(tree: &Command, matches: &ArgMatches) -> Self {
        let Some((subcommand, matches)) = matches.subcommand() else { return Self::default() };
        let options = tree.find_subcommand(subcommand).into_iter().flat_map(Command::get_arguments);
        let from_environment = options
            .filter(|arg| matches.value_source(arg.get_id().as_str()) == Some(ValueSource::EnvVariable));
        let variables =
            from_environment.filter_map(|arg| Some((arg.get_id().to_string(), variable(arg)?))).collect();
        Self { variables }
    }

    /// The variable that an option's value comes from.
    pub(super) fn variable(&self, field: &str) -> Option<&str> {
        self.variables.iter().find(|(known, _)| known == field).map(|(_, variable)| variable.as_str())
    }

    /// Adds to an error the variable whose value it is about.
    pub(super) fn explain(&self, error: Error) -> Error {
        let field = match error.kind() {
            ErrorKind::Load => Some("model"),
            ErrorKind::Config | ErrorKind::Capacity if error.origin().is_none() => error.field(),
            _ => None,
        };
        match field.and_then(|field| self.variable(field)) {
            Some(variable) => {
                let variable = variable.to_owned();
                error.from_origin(Origin::Environment(variable))
            }
            None => error,
        }
    }
}

/// The names of all variables of the command and its library, in alphabetical order.
pub(super) fn variables() -> Vec<String> {
    let command = command();
    let subcommands = std::iter::once(&command).chain(command.get_subcommands());
    let mut names: Vec<String> = subcommands.flat_map(Command::get_arguments).filter_map(variable).collect();
    names.extend(LIBRARY_VARIABLES.map(str::to_owned));
    names.sort_unstable();
    names.dedup();
    names
}

/// The option of a field or argument, such as `--num-beams`. Not for what makes the options.
pub(super) fn option(name: &str) -> Option<&'static str> {
    static OPTIONS: LazyLock<BTreeMap<String, String>> = LazyLock::new(|| {
        let command = command();
        let all = command.get_subcommands().flat_map(Command::get_arguments);
        all.filter_map(|arg| Some((arg.get_id().to_string(), format!("--{}", arg.get_long()?)))).collect()
    });
    OPTIONS.get(name).map(String::as_str)
}

/// The variables in the environment with the prefix, in alphabetical order.
pub(super) fn given_variables() -> Vec<String> {
    let names = std::env::vars_os().filter_map(|(name, _)| name.into_string().ok());
    let mut names: Vec<String> = names.filter(|name| name.starts_with(PREFIX)).collect();
    names.sort_unstable();
    names
}

/// The unknown ones of them, such as misspelt ones.
pub(super) fn unknown_variables() -> Vec<String> {
    let known = variables();
    given_variables().into_iter().filter(|name| !known.contains(name)).collect()
}

/// Warns of unknown variables, with the one that was probably meant.
pub(super) fn warn_of_unknown_variables() {
    let unknown = unknown_variables();
    if unknown.is_empty() {
        return;
    }
    let known: Vec<String> =
        variables().iter().filter_map(|name| Some(name.strip_prefix(PREFIX)?.to_ascii_lowercase())).collect();
    for name in unknown {
        let own = name.trim_start_matches(PREFIX).to_ascii_lowercase();
        let meant = suggest(&own, known.iter().map(String::as_str)).map_or_else(String::new, |meant| {
            format!("; did you mean {PREFIX}{}?", meant.to_ascii_uppercase())
        });
        log::warn!("the environment variable {name} is unknown and has no effect{meant}");
    }
}

/// The variable of an option.
pub(super) fn variable(arg: &Arg) -> Option<String> {
    arg.get_env().map(|name| name.to_string_lossy().into_owned())
}

fn each_argument(command: Command, change: impl Fn(Arg) -> Arg) -> Command {
    command.mut_args(&change).mut_subcommands(|subcommand| subcommand.mut_args(&change))
}

/// Lets a flag be switched off too: `--json=false` takes precedence over `RSGEN_JSON=1`.
fn switch(arg: Arg) -> Arg {
    if arg.get_value_parser().type_id() != TypeId::of::<bool>() {
        return arg;
    }
    let is_plain = matches!(arg.get_action(), ArgAction::SetTrue);
    let arg = arg
        .action(ArgAction::Set)
        .num_args(0..=1)
        .require_equals(true)
        .value_name("BOOL")
        .default_missing_value("true")
        .value_parser(BoolishValueParser::new())
        .hide_possible_values(true);
    if is_plain { arg.default_value("false").hide_default_value(true) } else { arg }
}

/// The long help also names the variable; the short one has no room for it.
fn documented(arg: Arg) -> Arg {
    let help = arg.get_long_help().or(arg.get_help()).map(ToString::to_string);
    match (variable(&arg), help) {
        (Some(variable), Some(help)) => arg.hide_env(true).long_help(format!("{help}\n[env: {variable}]")),
        _ => arg,
    }
}

fn is_read(arg: &Arg) -> bool {
    variable(arg).is_some_and(|name| {
        !LIBRARY_VARIABLES.contains(&name.as_str()) && var_os(name).is_some_and(|value| !value.is_empty())
    })
}

fn without_variable(arg: Arg) -> Arg {
    arg.env(Resettable::Reset)
}

/// Finds the variable with an invalid value: without it the error disappears.
fn variable_behind(error: &clap::Error, tree: Command, line: &[OsString]) -> Option<String> {
    let culprit = |error: &clap::Error| match error.get(ContextKind::InvalidArg) {
        Some(ContextValue::String(option)) => Some(option.clone()),
        _ => None,
    };
    let option = culprit(error)?;
    // Only a built command can print its options.
    let mut built = tree.clone();
    built.build();
    let subcommands = std::iter::once(&built).chain(built.get_subcommands());
    let variable = subcommands
        .flat_map(Command::get_arguments)
        .find(|arg| variable(arg).is_some() && arg.to_string() == option)
        .and_then(variable)?;
    let on_the_line = each_argument(tree, without_variable).try_get_matches_from(line).err();
    let is_on_the_line = on_the_line.and_then(|error| culprit(&error)).is_some_and(|other| other == option);
    (!is_on_the_line).then_some(variable)
}

fn is_true(value: &str) -> bool {
    let parsed = BoolishValueParser::new().parse_ref(&Command::new(Str::from("rsgen")), None, value.as_ref());
    parsed.unwrap_or(false)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rsgen_core::Message;
    use rsgen_generation::GenerationConfig;

    #[test]
    fn each_field_has_the_name_of_its_option_and_the_variable_behind_it() {
        for info in GenerationConfig::FIELDS {
            let mut config = GenerationConfig::new();
            let wrong = ["(", "[]", "{\"not\": {}}", "1.5", "[[\"x\"]]"].map(|text| {
                serde_json::from_str(text).unwrap_or_else(|_| serde_json::Value::from(text)).into()
            });
            let error = wrong.iter().find_map(|value| config.set(info.name, value).err());
            let error = error.unwrap_or_else(|| panic!("{} takes everything", info.name));
            let Some(option) = option(info.name) else { continue };
            assert_eq!(option, format!("--{}", info.name.replace('_', "-")));
            let told = super::super::wording::told(&error);
            assert!(told.starts_with(&format!("`{option}` must be")), "{told}");
            let variable = format!("RSGEN_{}", info.name.to_ascii_uppercase());
            let origins = Origins { variables: vec![(info.name.to_owned(), variable.clone())] };
            let explained = origins.explain(error);
            assert_eq!(explained.origin(), Some(&Origin::Environment(variable.clone())));
            let told = super::super::wording::told(&explained);
            assert!(
                told.starts_with(&format!("environment variable {variable}: `{option}` must be")),
                "{told}"
            );
        }
    }

    #[test]
    fn a_variable_is_named_where_the_error_is_about_its_value() {
        let variables = [("kv_cache_bytes", "A"), ("model", "B"), ("top_p", "C")];
        let variables = variables.map(|(field, variable)| (field.to_owned(), variable.to_owned())).to_vec();
        let origins = Origins { variables };
        let of_file = Origin::ModelFile("generation_config.json");
        for (error, expected) in [
            (Error::capacity("is too small").about("kv_cache_bytes"), Some("A")),
            (Error::load("is damaged"), Some("B")),
            (Error::config("is 7").about("top_p"), Some("C")),
            (Error::config("is 7").about("top_k"), None),
            (Error::config(Message::from("`top_p` is 7")), None),
            (Error::input("is too long").about("top_p"), None),
            (Error::config("is 7").about("top_p").from_origin(of_file.clone()), None),
        ] {
            let kept = error.origin().cloned();
            let expected = expected.map(|variable| Origin::Environment(variable.to_owned())).or(kept);
            assert_eq!(origins.explain(error).origin().cloned(), expected);
        }
    }
}
