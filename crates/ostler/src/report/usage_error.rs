//! Usage errors of the command line, rendered like every other error: one line with the cause, and a hint.

use clap::error::{ContextKind, ContextValue, ErrorKind};

/// Renders a clap error as `error: …` and `hint: …`; clap's own text has several lines.
///
/// `program` is the definition of the commands, and `args` are the process arguments without the program name; they supply the
/// subcommand if the error does not contain it.
pub(crate) fn render(error: &clap::Error, program: &clap::Command, args: &[String]) -> String {
    let (cause, hint) = cause_and_hint(error, &command(error, program, args));
    format!("error: {cause}\nhint: {hint}")
}

fn cause_and_hint(error: &clap::Error, command: &str) -> (String, String) {
    let first = |kind| context_texts(error, kind).into_iter().next();
    let help = format!("run `{command} --help` for usage");
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
            (format!("`{command}` requires {missing_arguments}"), help)
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
fn command(error: &clap::Error, program: &clap::Command, args: &[String]) -> String {
    let usage = context_texts(error, ContextKind::Usage).concat();
    let usage: Vec<&str> = usage.trim_start_matches("Usage:").split_whitespace().collect();
    let is_word = |word: &&str| !word.starts_with(['-', '<', '[']);
    let from_usage: Vec<&str> = usage.into_iter().take_while(is_word).collect();
    if from_usage.is_empty() { command_path(program, args) } else { from_usage.join(" ") }
}

/// Returns the command that `args` call, such as `ostler rollout status`.
fn command_path(program: &clap::Command, args: &[String]) -> String {
    let (mut command, mut path) = (program, vec![program.get_name()]);
    for arg in args {
        if let Some(subcommand) = command.find_subcommand(arg) {
            path.push(subcommand.get_name());
            command = subcommand;
        }
    }
    path.join(" ")
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

#[cfg(test)]
mod tests {
    use clap::{Arg, Command};
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::subcommand(&["rollout", "status", "isvc/chat", "--timeout", "abc"], "ostler rollout status")]
    #[case::flag_first(&["-v", "rollout", "--timeout", "abc", "status", "isvc/chat"], "ostler rollout status")]
    #[case::command(&["plan", "--timeout", "abc", "status"], "ostler plan")]
    #[case::no_command(&["--timeout", "abc"], "ostler")]
    fn names_the_command_of_an_invalid_value(#[case] args: &[&str], #[case] expected: &str) {
        let timeout = Arg::new("timeout").long("timeout").global(true).value_parser(clap::value_parser!(u64));
        let verbose = Arg::new("verbose").short('v').action(clap::ArgAction::SetTrue);
        let object = Arg::new("object");
        let program = Command::new("ostler").arg(timeout).arg(verbose).subcommands([
            Command::new("rollout").subcommand(Command::new("status").arg(object.clone())),
            Command::new("plan").arg(object),
        ]);
        let error = program.clone().try_get_matches_from(["ostler"].iter().chain(args)).unwrap_err();
        let args: Vec<String> = args.iter().map(ToString::to_string).collect();
        assert_eq!(
            render(&error, &program, &args),
            format!(
                "error: invalid value `abc` for --timeout <timeout>: invalid digit found in string\n\
                hint: run `{expected} --help` for usage"
            )
        );
    }
}
