//! Usage errors of the command line, rendered like every other error: one line with the cause, and a hint.

use clap::error::{ContextKind, ContextValue, ErrorKind};

/// Renders a clap error as `error: …` and `hint: …`; clap's own text has several lines.
///
/// `args` are the process arguments without the program name; they supply the subcommand if the error does not contain
/// it.
pub(crate) fn render(error: &clap::Error, args: &[String]) -> String {
    let (cause, hint) = cause_and_hint(error, args);
    format!("error: {cause}\nhint: {hint}")
}

fn cause_and_hint(error: &clap::Error, args: &[String]) -> (String, String) {
    let first = |kind| context_texts(error, kind).into_iter().next();
    let help = format!("run `{} --help` for usage", command(error, args));
    let flag = first(ContextKind::InvalidArg).unwrap_or_default();
    let flag_name = flag.split(' ').next().unwrap_or_default().to_owned();
    match error.kind() {
        ErrorKind::UnknownArgument => {
            let hint = first(ContextKind::SuggestedArg).map(|suggested| format!("did you mean `{suggested}`?"));
            (format!("unexpected argument `{flag}`"), hint.unwrap_or(help))
        }
        ErrorKind::InvalidSubcommand => {
            let subcommand = first(ContextKind::InvalidSubcommand).unwrap_or_default();
            let suggestions = context_texts(error, ContextKind::SuggestedSubcommand);
            // clap puts the most similar one last.
            let hint = suggestions.last().map(|suggested| format!("did you mean `{suggested}`?"));
            (format!("unknown command `{subcommand}`"), hint.unwrap_or(help))
        }
        ErrorKind::MissingRequiredArgument => {
            let missing_arguments = context_texts(error, ContextKind::InvalidArg).join(" and ");
            (format!("`{}` requires {missing_arguments}", command(error, args)), help)
        }
        ErrorKind::InvalidValue => invalid_value(error, &flag, &flag_name, help),
        ErrorKind::ValueValidation => {
            let value = first(ContextKind::InvalidValue).unwrap_or_default();
            let reason = std::error::Error::source(error).map(|source| format!(": {source}")).unwrap_or_default();
            (format!("invalid value `{value}` for {flag}{reason}"), help)
        }
        ErrorKind::ArgumentConflict => {
            let conflicting = context_texts(error, ContextKind::PriorArg).join(" and ");
            (format!("{flag} cannot be used with {conflicting}"), format!("remove one of them; {help}"))
        }
        _ => (first_line(error), help),
    }
}

fn invalid_value(error: &clap::Error, flag: &str, flag_name: &str, help: String) -> (String, String) {
    let value = context_texts(error, ContextKind::InvalidValue).concat();
    let possible_values = context_texts(error, ContextKind::ValidValue);
    let hint =
        if possible_values.is_empty() { help } else { format!("possible values: {}", possible_values.join(", ")) };
    let cause = if value.is_empty() {
        format!("{flag_name} requires a value")
    } else {
        format!("invalid value `{value}` for {flag}")
    };
    (cause, hint)
}

/// Returns the command and its subcommands, such as `ostler plan`: from the error's usage, else from the arguments.
fn command(error: &clap::Error, args: &[String]) -> String {
    let usage = context_texts(error, ContextKind::Usage).concat();
    let usage: Vec<&str> = usage.trim_start_matches("Usage:").split_whitespace().collect();
    let is_word = |word: &&str| !word.starts_with(['-', '<', '[']);
    let from_usage: Vec<&str> = usage.into_iter().take_while(is_word).collect();
    let from_args = args.iter().map(String::as_str).take(1).filter(is_word);
    if from_usage.is_empty() { ["ostler"].into_iter().chain(from_args).collect() } else { from_usage }.join(" ")
}

fn context_texts(error: &clap::Error, kind: ContextKind) -> Vec<String> {
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
