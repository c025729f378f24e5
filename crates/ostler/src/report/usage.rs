//! Mistakes on the command line, in the form of every other error: one line with the cause, and a hint.

use clap::error::{ContextKind, ContextValue, ErrorKind};

/// `error: …` and `hint: …` for what clap refused; clap's own text has several lines.
///
/// `words` are the arguments as they were given: not every error knows which command it is about.
pub(crate) fn render(error: &clap::Error, words: &[String]) -> String {
    let (cause, hint) = told(error, words);
    format!("error: {cause}\nhint: {hint}")
}

fn told(error: &clap::Error, words: &[String]) -> (String, String) {
    let one = |kind| texts(error, kind).into_iter().next();
    let help = format!("`{} --help` shows how it is used", command(error, words));
    let flag = one(ContextKind::InvalidArg).unwrap_or_default();
    let name = flag.split(' ').next().unwrap_or_default().to_owned();
    match error.kind() {
        ErrorKind::UnknownArgument => {
            let hint = one(ContextKind::SuggestedArg).map(|known| format!("did you mean `{known}`?"));
            (format!("unexpected argument `{flag}`"), hint.unwrap_or(help))
        }
        ErrorKind::InvalidSubcommand => {
            let word = one(ContextKind::InvalidSubcommand).unwrap_or_default();
            let known = texts(error, ContextKind::SuggestedSubcommand);
            // clap puts the nearest last.
            let hint = known.last().map(|known| format!("did you mean `{known}`?"));
            (format!("there is no command `{word}`"), hint.unwrap_or(help))
        }
        ErrorKind::MissingRequiredArgument => {
            let missing = texts(error, ContextKind::InvalidArg).join(" and ");
            (format!("`{}` needs {missing}", command(error, words)), help)
        }
        ErrorKind::InvalidValue => invalid_value(error, &flag, &name, help),
        ErrorKind::ValueValidation => {
            let value = one(ContextKind::InvalidValue).unwrap_or_default();
            let why = std::error::Error::source(error).map(|source| format!(": {source}")).unwrap_or_default();
            (format!("`{value}` is no value for {flag}{why}"), help)
        }
        ErrorKind::ArgumentConflict => {
            let other = texts(error, ContextKind::PriorArg).join(" and ");
            (format!("{flag} does not go together with {other}"), format!("leave one of them out; {help}"))
        }
        _ => (first_line(error), help),
    }
}

fn invalid_value(error: &clap::Error, flag: &str, name: &str, help: String) -> (String, String) {
    let value = texts(error, ContextKind::InvalidValue).concat();
    let known = texts(error, ContextKind::ValidValue);
    let hint = if known.is_empty() { help } else { format!("one of {}", known.join(", ")) };
    let cause =
        if value.is_empty() { format!("{name} needs a value") } else { format!("`{value}` is no value for {flag}") };
    (cause, hint)
}

/// The words before the first flag of the usage, or of what was typed: `ostler plan`.
fn command(error: &clap::Error, words: &[String]) -> String {
    let usage = texts(error, ContextKind::Usage).concat();
    let usage: Vec<&str> = usage.trim_start_matches("Usage:").split_whitespace().collect();
    let is_word = |word: &&str| !word.starts_with(['-', '<', '[']);
    let stated: Vec<&str> = usage.into_iter().take_while(is_word).collect();
    let typed = words.iter().map(String::as_str).take(1).filter(is_word);
    if stated.is_empty() { ["ostler"].into_iter().chain(typed).collect() } else { stated }.join(" ")
}

fn texts(error: &clap::Error, kind: ContextKind) -> Vec<String> {
    match error.get(kind) {
        Some(ContextValue::String(text)) => vec![text.clone()],
        Some(ContextValue::Strings(texts)) => texts.clone(),
        Some(ContextValue::StyledStr(text)) => vec![text.to_string()],
        _ => Vec::new(),
    }
}

fn first_line(error: &clap::Error) -> String {
    let text = error.to_string();
    text.lines().next().unwrap_or_default().trim_start_matches("error: ").to_owned()
}
