//! Command lines merge by flag: `runtime (minus overridden flags) ++ service ++ accelerator (minus the service's flags)`.
//! Words are never split, joined or changed, so templates and JSON arguments pass byte for byte.

use std::collections::BTreeSet;

use settings::SettingRecorder;

use super::flags;
use super::origin::{Origin, Setting, Sources};
use crate::code;
use crate::reason::Warning;

/// `command` and `args` of a container.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CommandLine {
    pub command: Vec<String>,
    pub args: Vec<String>,
}

/// A merged line, who said what of it, and what could not be applied.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct MergedCommandLine {
    pub line: CommandLine,
    pub settings: Vec<Setting>,
    pub warnings: Vec<Warning>,
}

/// Merges three sources. A command of the service switches the accelerator's arguments off; a command of the runtime is
/// merged in place, unless it is a shell's.
#[must_use]
pub fn merge_args(sources: &Sources<CommandLine>) -> MergedCommandLine {
    let (service, tuning) = (&sources.service, &sources.configuration);
    if !service.command.is_empty() {
        let warnings = not_applied(&tuning.args, "the service states a command of its own");
        return MergedCommandLine { warnings, ..alone(service, Origin::Service) };
    }
    if !tuning.command.is_empty() {
        // As in a container: another command comes without the first one's arguments.
        let tuned = CommandLine { command: tuning.command.clone(), args: tuning.args.clone() };
        return by_flag(
            &Sources { runtime: tuned, configuration: CommandLine::default(), service: service.clone() },
            Origin::Configuration,
        );
    }
    match script(&sources.runtime) {
        Some(script) => behind_script(sources, &script),
        None => by_flag(sources, Origin::Runtime),
    }
}

/// `upper` over `lower`: flags of `upper` replace those of `lower`, the rest stays.
#[must_use]
pub fn override_args(lower: &[String], upper: &[String]) -> Vec<String> {
    let mut args = without(lower, &keys(upper));
    args.extend(upper.iter().cloned());
    args
}

/// `base` is who states the line at the bottom.
fn by_flag(sources: &Sources<CommandLine>, base: Origin) -> MergedCommandLine {
    let users = keys(&sources.service.args);
    let tuning = without(&sources.configuration.args, &users);
    let stronger: BTreeSet<Key> = users.union(&keys(&tuning)).cloned().collect();
    let flags_only = stronger.iter().filter(|key| matches!(key, Key::Flag(name) if !name.starts_with('-'))).cloned();
    let command = without(&sources.runtime.command, &flags_only.collect());
    let mut args = without(&sources.runtime.args, &stronger);
    args.extend(sources.service.args.iter().cloned());
    args.extend(tuning);
    let mut told = SettingRecorder::default();
    let stated = [
        (base, [sources.runtime.command.as_slice(), &sources.runtime.args].concat()),
        (Origin::Configuration, sources.configuration.args.clone()),
        (Origin::Service, sources.service.args.clone()),
    ];
    for (origin, words) in &stated {
        told.record(words, *origin);
    }
    MergedCommandLine { line: CommandLine { command, args }, settings: told.settings, warnings: Vec::new() }
}

/// One source's line as it is.
fn alone(line: &CommandLine, origin: Origin) -> MergedCommandLine {
    let mut told = SettingRecorder::default();
    told.record(&line.args, origin);
    let mut settings = vec![Setting::new("command", line.command.join(" "), origin)];
    settings.extend(told.settings);
    MergedCommandLine { line: line.clone(), settings, warnings: Vec::new() }
}

/// The words of a shell's script, where the line is a shell's: they belong to the shell, not to the engine.
fn script(line: &CommandLine) -> Option<String> {
    let words = [line.command.as_slice(), &line.args].concat();
    let script = words.get(shell_script_index(&words)?..)?;
    Some(script.join(" "))
}

/// Where the script stands in `sh -c SCRIPT`, whichever shell with whichever other options (`bash -lc`), behind `env` or an
/// init too; it may be the position after the last word. `None` where no shell is told to run one.
#[must_use]
pub fn shell_script_index(words: &[String]) -> Option<usize> {
    // An engine's own flags may have values that look like shells.
    let launchers = words.iter().take_while(|word| !(word.starts_with("--") && word.len() > 2));
    let program = launchers.enumerate().find(|(_, word)| is_shell(word)).map(|(at, _)| at)?;
    let mut at = program + 1 + words.iter().skip(program + 1).take_while(|word| is_shell(word)).count();
    while let Some(option) = words.get(at).filter(|word| word.starts_with(['-', '+'])) {
        let letters = if option.starts_with("--") { "" } else { option.as_str() };
        if letters.contains('c') {
            return Some(at + 1);
        }
        // `-o pipefail`
        at += if letters.ends_with(['o', 'O']) { 2 } else { 1 };
    }
    None
}

/// Whether a word names a shell, with or without its path.
#[must_use]
pub fn is_shell(word: &str) -> bool {
    matches!(word.rsplit('/').next(), Some("sh" | "bash" | "ash" | "dash" | "zsh" | "busybox" | "ksh"))
}

/// A script is left alone. Arguments after it are its parameters, which it reads only if it says so.
fn behind_script(sources: &Sources<CommandLine>, script: &str) -> MergedCommandLine {
    let Sources { runtime, configuration, service } = sources;
    let mut warnings = not_applied(&configuration.args, "the runtime's command is a shell script");
    if !service.args.is_empty() && !["$@", "$*", "${@", "$1"].iter().any(|name| script.contains(name)) {
        let message = format!(
            "the runtime's command is a shell script that reads no parameters; these arguments of the service have no effect, state engine.runner.command too: {}",
            service.args.join(" ")
        );
        warnings.push(Warning::new(code::warning::SERVICE_ARGS_NOT_READ, message));
    }
    let args = runtime.args.iter().chain(&service.args).cloned().collect();
    let mut told = SettingRecorder::default();
    told.record(&service.args, Origin::Service);
    let mut settings = vec![Setting::new("command", runtime.command.join(" "), Origin::Runtime)];
    settings.extend(told.settings);
    MergedCommandLine { line: CommandLine { command: runtime.command.clone(), args }, settings, warnings }
}

fn not_applied(accelerator: &[String], because: &str) -> Vec<Warning> {
    if accelerator.is_empty() {
        return Vec::new();
    }
    let message = format!(
        "{because}; these arguments of the accelerator configuration are not applied: {}",
        accelerator.join(" ")
    );
    vec![Warning::new(code::warning::ACCELERATOR_ARGS_NOT_APPLIED, message)]
}

/// Accelerators of one replica that a line states in numbers: tensor × pipeline × data parallelism, whichever alias it
/// uses; `None` if it states none of them.
#[must_use]
pub fn args_parallelism<'a>(words: impl IntoIterator<Item = &'a str>) -> Option<u32> {
    let words: Vec<String> = words.into_iter().flat_map(split_script).collect();
    let segments = segments(&words);
    let of = |flag: &str| segments.iter().rev().find(|segment| segment.key == Key::Flag(flag.to_owned()));
    let number = |flag: &str| of(flag)?.values().first()?.parse::<u32>().ok().filter(|count| *count > 0);
    // With attention split by data the same ranks serve both; elsewhere every data-parallel rank is an engine more.
    let data = number("data-parallel-size").filter(|_| of("enable-dp-attention").is_none());
    let sizes = [number("tensor-parallel-size"), number("pipeline-parallel-size"), data];
    sizes.iter().any(Option::is_some).then(|| sizes.into_iter().flatten().fold(1, u32::saturating_mul))
}

/// A shell string holds many words.
fn split_script(word: &str) -> Vec<String> {
    if !word.contains(char::is_whitespace) {
        return vec![word.to_owned()];
    }
    word.split_whitespace().map(|part| part.trim_matches(['"', '\'', '\\']).to_owned()).collect()
}

/// What a segment is about.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Key {
    /// Canonical name of a setting; a short flag has its dash.
    Flag(String),
    /// A word that belongs to no flag.
    Word(String),
}

/// A flag with its values, or a word that belongs to none.
struct Segment<'a> {
    key: Key,
    words: Vec<&'a String>,
    /// Further words belong to it.
    open: bool,
}

impl Segment<'_> {
    /// The flag as it is written, without its value.
    fn name(&self) -> &str {
        let first = self.words.first().map(|word| word.as_str()).unwrap_or_default();
        first.split(['=', ' ']).next().unwrap_or(first)
    }

    fn values(&self) -> Vec<&str> {
        let first = self.words.first().map(|word| word.as_str()).unwrap_or_default();
        let inline = first.find(['=', ' ']).map(|at| first[at + 1..].trim());
        inline.into_iter().chain(self.words.iter().skip(1).map(|word| word.as_str())).collect()
    }
}

/// A flag owns every word up to the next flag (`--cuda-graph-bs 1 2 4` is one segment), unless it has its value already
/// (`--flag=v`) or takes none.
fn segments(words: &[String]) -> Vec<Segment<'_>> {
    let mut segments: Vec<Segment<'_>> = Vec::new();
    for word in words {
        match (flags::setting(word), segments.last_mut()) {
            (Some(setting), _) => {
                let open = !word.contains(['=', ' ']);
                segments.push(Segment { key: Key::Flag(setting), words: vec![word], open });
            }
            (None, Some(flag)) if flag.open && takes(flag, word) => flag.words.push(word),
            (None, _) => segments.push(Segment { key: Key::Word(word.clone()), words: vec![word], open: false }),
        }
    }
    segments
}

fn takes(flag: &Segment<'_>, word: &str) -> bool {
    let switch = flag.words.first().is_some_and(|name| flags::is_switch(name));
    word != "--" && (!switch || flags::is_truth(word))
}

fn keys(words: &[String]) -> BTreeSet<Key> {
    segments(words).into_iter().map(|segment| segment.key).collect()
}

fn without(words: &[String], dropped: &BTreeSet<Key>) -> Vec<String> {
    let kept = segments(words).into_iter().filter(|segment| !dropped.contains(&segment.key));
    kept.flat_map(|segment| segment.words).cloned().collect()
}

mod settings;

#[cfg(test)]
mod tests;
