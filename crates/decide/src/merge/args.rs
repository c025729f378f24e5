//! Merges command lines by flag: arguments of the runtime without overridden flags, then those of the service, then those of
//! the accelerator configuration without flags of the service. Arguments are never split, joined or changed, so that
//! templates and JSON stay byte-identical.

mod settings;

use std::collections::{BTreeMap, BTreeSet};

use super::segment::{FlagKey, keys, segments, without_keys};
use settings::SettingRecorder;

use super::origin::{Origin, Setting, SettingField, Sources};
use crate::code;
use crate::reason::Warning;

/// Canonical name of the flag of tensor parallelism.
pub(super) const TENSOR_PARALLEL_SIZE: &str = "tensor-parallel-size";

/// `command` and `args` of a container.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CommandLine {
    /// `command`.
    pub command: Vec<String>,
    /// `args`.
    pub args: Vec<String>,
}

/// A merged command line with the origin of each flag.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct MergedCommandLine {
    /// The command line.
    pub command_line: CommandLine,
    /// Origin of each flag, or of the command.
    pub settings: Vec<Setting>,
    /// Arguments that could not be applied.
    pub warnings: Vec<Warning>,
}

/// Merges the command lines of all sources. If the service sets a command, the arguments of the accelerator
/// configuration are discarded; a command of the runtime is merged with the arguments, unless it runs a shell script.
#[must_use]
pub fn merge_args(sources: &Sources<CommandLine>) -> MergedCommandLine {
    let (service, configuration) = (&sources.service, &sources.configuration);
    if !service.command.is_empty() {
        let warnings = args_not_applied(&configuration.args, "The service sets its own command");
        return MergedCommandLine { warnings, ..from_single_source(service, Origin::Service) };
    }
    if !configuration.command.is_empty() {
        // As in Kubernetes, overriding the command also discards the runtime's arguments.
        return merge_by_flag(
            &Sources {
                runtime: configuration.clone(),
                configuration: CommandLine::default(),
                service: service.clone(),
            },
            Origin::Configuration,
        );
    }
    match shell_script(&sources.runtime) {
        Some(script) => merge_after_script(sources, &script),
        None => merge_by_flag(sources, Origin::Runtime),
    }
}

/// Returns `lower` without the flags that `upper` sets, followed by `upper`.
pub(crate) fn override_args(lower: &[String], upper: &[String]) -> Vec<String> {
    let mut args = without_keys(lower, &keys(upper));
    args.extend(upper.iter().cloned());
    args
}

/// Merges by flag. `base` is the origin of the weakest command line.
fn merge_by_flag(sources: &Sources<CommandLine>, base: Origin) -> MergedCommandLine {
    let service_keys = keys(&sources.service.args);
    let configuration = without_keys(&sources.configuration.args, &service_keys);
    let overridden: BTreeSet<FlagKey> = service_keys.union(&keys(&configuration)).cloned().collect();
    let is_long_flag = |key: &&FlagKey| matches!(key, FlagKey::Flag(name) if !name.starts_with('-'));
    let command = without_keys(&sources.runtime.command, &overridden.iter().filter(is_long_flag).cloned().collect());
    let mut args = without_keys(&sources.runtime.args, &overridden);
    args.extend(sources.service.args.iter().cloned());
    args.extend(configuration);
    let mut recorder = SettingRecorder::default();
    let layers = [
        (base, [sources.runtime.command.as_slice(), &sources.runtime.args].concat()),
        (Origin::Configuration, sources.configuration.args.clone()),
        (Origin::Service, sources.service.args.clone()),
    ];
    for (origin, words) in &layers {
        recorder.record(words, *origin);
    }
    MergedCommandLine { command_line: CommandLine { command, args }, settings: recorder.settings, warnings: Vec::new() }
}

/// Returns the command line of one source unchanged.
fn from_single_source(line: &CommandLine, origin: Origin) -> MergedCommandLine {
    let mut recorder = SettingRecorder::default();
    recorder.record(&line.args, origin);
    let mut settings = vec![Setting::new(SettingField::named("command"), line.command.join(" "), origin)];
    settings.extend(recorder.settings);
    MergedCommandLine { command_line: line.clone(), settings, warnings: Vec::new() }
}

/// Returns the script with its parameters, if the command line runs a shell with one.
fn shell_script(line: &CommandLine) -> Option<String> {
    let words = [line.command.as_slice(), &line.args].concat();
    let script = words.get(shell_script_index(&words)?..)?;
    Some(script.join(" "))
}

/// Returns the index of the script in `sh -c SCRIPT`, for any shell and options (`bash -lc`), also after `env` or an init
/// process. The index equals the number of words if the script is missing. `None` if no shell runs a script.
#[must_use]
pub fn shell_script_index(words: &[String]) -> Option<usize> {
    // Flag values of an engine may look like the name of a shell.
    let launchers = words.iter().take_while(|word| !(word.starts_with("--") && word.len() > 2));
    let program = launchers.enumerate().find(|(_, word)| is_shell(word)).map(|(index, _)| index)?;
    let mut index = program + 1 + words.iter().skip(program + 1).take_while(|word| is_shell(word)).count();
    while let Some(option) = words.get(index).filter(|word| word.starts_with(['-', '+'])) {
        let letters = if option.starts_with("--") { "" } else { option.as_str() };
        if letters.contains('c') {
            return Some(index + 1);
        }
        // `-o` takes a value, as in `-o pipefail`.
        index += if letters.ends_with(['o', 'O']) { 2 } else { 1 };
    }
    None
}

/// Whether `word` is the name or path of a shell.
#[must_use]
pub fn is_shell(word: &str) -> bool {
    matches!(word.rsplit('/').next(), Some("sh" | "bash" | "ash" | "dash" | "zsh" | "busybox" | "ksh"))
}

/// Appends the arguments of the service after a shell script, as parameters of the script.
fn merge_after_script(sources: &Sources<CommandLine>, script: &str) -> MergedCommandLine {
    let Sources { runtime, configuration, service } = sources;
    let mut warnings = args_not_applied(&configuration.args, "The runtime's command is a shell script");
    if !service.args.is_empty() && !["$@", "$*", "${@", "$1"].iter().any(|name| script.contains(name)) {
        let message = format!(
            "The runtime's command is a shell script that does not use its parameters, so these arguments of the service have no effect: {}; set engine.runner.command as well",
            service.args.join(" ")
        );
        warnings.push(Warning::new(code::warning::SERVICE_ARGS_NOT_READ, message));
    }
    let args = runtime.args.iter().chain(&service.args).cloned().collect();
    let mut recorder = SettingRecorder::default();
    recorder.record(&service.args, Origin::Service);
    let mut settings = vec![Setting::new(SettingField::named("command"), runtime.command.join(" "), Origin::Runtime)];
    settings.extend(recorder.settings);
    MergedCommandLine { command_line: CommandLine { command: runtime.command.clone(), args }, settings, warnings }
}

fn args_not_applied(args: &[String], reason: &str) -> Vec<Warning> {
    if args.is_empty() {
        return Vec::new();
    }
    let message =
        format!("{reason}, so these arguments of the accelerator configuration are not applied: {}", args.join(" "));
    vec![Warning::new(code::warning::ACCELERATOR_ARGS_NOT_APPLIED, message)]
}

/// Returns the first values of those of `flags` that arguments or a shell script state, by canonical name. The last occurrence
/// of a flag takes precedence, as in argparse.
pub(crate) fn stated_flags<'a>(
    words: impl IntoIterator<Item = &'a str>,
    flags: &[&'static str],
) -> BTreeMap<&'static str, String> {
    let words: Vec<String> =
        words
            .into_iter()
            .flat_map(|word| {
                if word.contains(char::is_whitespace) { split_script(word).collect() } else { vec![word.to_owned()] }
            })
            .collect();
    let mut stated = BTreeMap::new();
    for segment in segments(&words) {
        let FlagKey::Flag(name) = &segment.key else { continue };
        let value = segment.values().first().map(|value| (*value).to_owned());
        stated.extend(flags.iter().find(|flag| *flag == name).copied().zip(value));
    }
    stated
}

/// Replaces the size of tensor parallelism in arguments, which keep their form. Returns whether they state one.
pub fn replace_tensor_parallel_size(args: &mut [String], size: u32) -> bool {
    let key = FlagKey::Flag(TENSOR_PARALLEL_SIZE.to_owned());
    let positions: Vec<usize> = {
        let mut position = 0;
        let segments = segments(args).into_iter();
        let starts = segments.map(|segment| {
            let start = position;
            position += segment.words.len();
            (start, segment.key == key)
        });
        starts.filter(|(_, is_size)| *is_size).map(|(start, _)| start).collect()
    };
    for &position in &positions {
        match args[position].split_once('=') {
            Some((name, _)) => args[position] = format!("{name}={size}"),
            None => args.iter_mut().skip(position + 1).take(1).for_each(|value| *value = size.to_string()),
        }
    }
    !positions.is_empty()
}

/// Splits a shell script into words.
pub(super) fn split_script(word: &str) -> impl Iterator<Item = String> {
    word.split_whitespace().map(|word| word.trim_matches(['"', '\'', '\\']).to_owned())
}

#[cfg(test)]
mod tests;
