//! Logging of every command: `--log-level`, `--log-format`, and whether the output is colored.

use std::ffi::{OsStr, OsString};
use std::io::IsTerminal as _;
use std::str::FromStr;

use clap::ValueEnum;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::LevelFilter;

/// Environment variable with a filter for commands without `--log-level`.
const FILTER_VARIABLE: &str = "OSTLER_LOG";

// `kube_client` logs errors that it also returns.

/// Filter of commands that run until they receive a signal: logs startup, leadership, state transitions and problems.
pub(crate) const INFO: &str = "warn,kube_client=off,kube_runtime=error,actuation=info,cluster=info,embedded=info,engine=info,operator=info,ostler=info,picker=info";
/// Filter of commands that end by themselves, and of `ostler up`, which prints a table of services instead.
pub(crate) const WARN: &str = "warn,kube_client=off";

#[derive(clap::Args)]
#[command(next_help_heading = "Logging")]
pub(crate) struct LogArgs {
    /// Log at LEVEL (error, warn, info, debug, trace) or by filter
    ///
    /// A filter is a list of levels by module, such as `info,kube=warn`. Without this option, $OSTLER_LOG sets the
    /// filter. Log lines are written to standard error.
    #[arg(long, global = true, value_name = "LEVEL", display_order = 1000)]
    log_level: Option<LogFilter>,
    /// Write log lines as text or as JSON objects
    #[arg(long, global = true, value_enum, value_name = "FORMAT", default_value_t = LogFormat::Text, display_order = 1001)]
    log_format: LogFormat,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum LogFormat {
    Text,
    Json,
}

/// A valid filter of log lines.
#[derive(Debug, Clone, PartialEq, Eq)]
struct LogFilter(String);

// === impl LogArgs ===

impl LogArgs {
    /// Installs the subscriber that writes log lines to standard error. `default_filter` applies where neither the option nor
    /// the environment sets one.
    pub(crate) fn init(&self, default_filter: &str) {
        let log = tracing_subscriber::fmt()
            .with_env_filter(self.filter(default_filter))
            .with_writer(std::io::stderr)
            .with_ansi(use_color(std::io::stderr().is_terminal(), std::env::var_os("NO_COLOR")))
            .log_internal_errors(false);
        match self.log_format {
            LogFormat::Text => log.init(),
            LogFormat::Json => log.json().flatten_event(true).init(),
        }
    }

    fn filter(&self, default_filter: &str) -> EnvFilter {
        if let Some(LogFilter(filter)) = &self.log_level {
            return EnvFilter::new(filter);
        }
        EnvFilter::try_from_env(FILTER_VARIABLE).unwrap_or_else(|_| EnvFilter::new(default_filter))
    }
}

// === impl LogFilter ===

impl FromStr for LogFilter {
    type Err = String;

    /// Parses a level or a list of filter directives. `EnvFilter` interprets a misspelled level as a module name;
    /// here, a directive without `=` must be a level.
    fn from_str(text: &str) -> Result<Self, String> {
        const EXPECTED: &str = "expected error, warn, info, debug, trace, or a filter such as `info,kube=warn`";
        let is_directive = |directive: &str| directive.contains(['=', '[']) || directive.parse::<LevelFilter>().is_ok();
        let is_valid = !text.is_empty() && text.split(',').all(is_directive) && EnvFilter::try_new(text).is_ok();
        if is_valid { Ok(Self(text.to_owned())) } else { Err(EXPECTED.to_owned()) }
    }
}

/// Returns whether log lines are colored: on a terminal, unless `NO_COLOR` has a value (<https://no-color.org>).
fn use_color(is_terminal: bool, no_color: Option<OsString>) -> bool {
    is_terminal && no_color.as_deref().is_none_or(OsStr::is_empty)
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::terminal(true, None, true)]
    #[case::empty_no_color(true, Some(""), true)]
    #[case::no_color(true, Some("1"), false)]
    #[case::pipe(false, None, false)]
    fn colors_terminals_only(#[case] is_terminal: bool, #[case] no_color: Option<&str>, #[case] expected: bool) {
        assert_eq!(use_color(is_terminal, no_color.map(OsString::from)), expected);
    }

    #[rstest]
    #[case("info", true)]
    #[case("WARN", true)]
    #[case("info,kube=warn", true)]
    #[case("operator=debug", true)]
    #[case("off", true)]
    #[case("loud", false)]
    #[case("info,loud", false)]
    #[case("kube=loud", false)]
    #[case("", false)]
    fn parses_levels_and_filters(#[case] text: &str, #[case] is_valid: bool) {
        assert_eq!(text.parse::<LogFilter>().is_ok(), is_valid);
    }
}
