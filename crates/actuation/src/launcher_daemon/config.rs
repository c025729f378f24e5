//! What a client requests of an instance: the body of `PUT /v2/vllm/instances/ID`, and the command line that follows from it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::error::LauncherError;

/// Maximum length of the id of an instance, which is part of the name of its log file.
const MAX_ID_LENGTH: usize = 128;
/// Annotation with the port of an engine whose arguments do not have it.
const PORT_ANNOTATION: &str = "inference-port";
const PORT_FLAG: &str = "--port";

/// Configuration of an instance. Fields that are not known are ignored, as by the deployed launcher.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct InstanceConfig {
    /// Arguments of the engine, separated by whitespace and without quoting, as for the deployed launcher. Excludes `command` and
    /// `args`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) options: Option<String>,
    /// Program and first arguments instead of those of `--engine-command`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) command: Option<Vec<String>>,
    /// Arguments of the engine, not changed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) args: Option<Vec<String>>,
    /// UUIDs of the GPUs. Without them, `CUDA_VISIBLE_DEVICES` is not changed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) gpu_uuids: Option<Vec<String>>,
    /// Variables in addition to those of the launcher.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) env_vars: Option<BTreeMap<String, String>>,
    /// Returned, but not interpreted, except for the port.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) annotations: Option<BTreeMap<String, String>>,
}

// === impl InstanceConfig ===

impl InstanceConfig {
    /// Parses and validates a request body.
    ///
    /// # Errors
    /// `InvalidRequest`, which names the field.
    pub(super) fn parse(body: &[u8]) -> Result<InstanceConfig, LauncherError> {
        let config: InstanceConfig = serde_json::from_slice(body)
            .map_err(|error| LauncherError::InvalidRequest(format!("invalid request body: {error}")))?;
        config.validate().map_err(LauncherError::InvalidRequest)?;
        Ok(config)
    }

    fn validate(&self) -> Result<(), String> {
        match (&self.options, &self.command, &self.args) {
            (None, None, None) => return Err("options: required, unless `command` or `args` is set".to_owned()),
            (Some(_), None, None) | (None, _, _) => {}
            _ => return Err("options: cannot be combined with `command` or `args`; use `args` instead".to_owned()),
        }
        if self.command.as_ref().is_some_and(|command| command.first().is_none_or(String::is_empty)) {
            return Err("command: must start with a program".to_owned());
        }
        let words = self.options.iter().chain(self.command.iter().flatten()).chain(self.args.iter().flatten());
        if words.into_iter().any(|word| word.contains('\0')) {
            return Err("options, command, args: must not contain NUL".to_owned());
        }
        for (name, value) in self.env_vars.iter().flatten() {
            if name.is_empty() || name.contains(['=', '\0']) || value.contains('\0') {
                return Err(format!("env_vars: {name:?} is not a variable: a name has no `=`, and neither part NUL"));
            }
        }
        let uuids = self.gpu_uuids.iter().flatten();
        match uuids.clone().enumerate().find(|(index, uuid)| uuids.clone().take(*index).any(|other| other == *uuid)) {
            Some((_, uuid)) => Err(format!("gpu_uuids: {uuid} is listed twice")),
            None => Ok(()),
        }
    }

    /// Returns program and arguments. `engine_command` is that of the launcher, at least one word.
    pub(super) fn command_line(&self, engine_command: &[String]) -> Vec<String> {
        let command = self.command.as_deref().unwrap_or(engine_command);
        let options = self.options.iter().flat_map(|options| options.split_whitespace()).map(str::to_owned);
        command.iter().cloned().chain(options).chain(self.args.iter().flatten().cloned()).collect()
    }

    /// Returns the port on which the engine listens, if the request states it: the flag `--port`, of several the last, or else the
    /// annotation `inference-port`.
    pub(super) fn port(&self) -> Option<u16> {
        let words = self.command_line(&[]);
        let mut values =
            words.iter().enumerate().rev().filter_map(|(index, word)| match word.strip_prefix(PORT_FLAG)? {
                "" => words.get(index + 1).map(String::as_str),
                rest => rest.strip_prefix('='),
            });
        let annotation = self.annotations.as_ref().and_then(|annotations| annotations.get(PORT_ANNOTATION));
        values.next().or(annotation.map(String::as_str))?.parse().ok()
    }
}

/// Checks the id of an instance.
///
/// # Errors
/// `InvalidRequest` if the id cannot be part of a file name.
pub(super) fn validate_id(id: &str) -> Result<(), LauncherError> {
    let is_allowed = |character: char| character.is_ascii_alphanumeric() || "-_.=".contains(character);
    match !id.is_empty() && id.len() <= MAX_ID_LENGTH && id.chars().all(is_allowed) {
        true => Ok(()),
        false => Err(LauncherError::InvalidRequest(format!(
            "instance id: must be 1 to {MAX_ID_LENGTH} letters, digits, `-`, `_`, `.` and `=`"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    fn parse(body: &str) -> Result<InstanceConfig, String> {
        InstanceConfig::parse(body.as_bytes()).map_err(|error| error.to_string())
    }

    // spec: DP-22
    #[rstest]
    #[case::options(r#"{"options": "--model m  --json {\"a\":1}"}"#, &["vllm", "serve", "--model", "m", "--json", "{\"a\":1}"])]
    #[case::exact_arguments(r#"{"args": ["m", "--chat-template", "a b"]}"#, &["vllm", "serve", "m", "--chat-template", "a b"])]
    #[case::other_command(r#"{"command": ["sglang"], "args": ["serve"]}"#, &["sglang", "serve"])]
    #[case::command_only(r#"{"command": ["sleep", "9"], "future": 1}"#, &["sleep", "9"])]
    fn command_lines(#[case] body: &str, #[case] expected: &[&str]) {
        let engine_command = ["vllm".to_owned(), "serve".to_owned()];
        assert_eq!(parse(body).unwrap().command_line(&engine_command), expected);
    }

    #[rstest]
    #[case::not_json("{", "invalid request body: EOF while parsing an object at line 1 column 1")]
    #[case::wrong_type(
        r#"{"options": 1}"#,
        "invalid request body: invalid type: integer `1`, expected a string at line 1 column 13"
    )]
    #[case::empty("{}", "options: required, unless `command` or `args` is set")]
    #[case::both(
        r#"{"options": "", "args": []}"#,
        "options: cannot be combined with `command` or `args`; use `args` instead"
    )]
    #[case::no_program(r#"{"command": []}"#, "command: must start with a program")]
    #[case::nul(r#"{"args": ["a\u0000"]}"#, "options, command, args: must not contain NUL")]
    #[case::variable(
        r#"{"options": "", "env_vars": {"A=B": ""}}"#,
        "env_vars: \"A=B\" is not a variable: a name has no `=`, and neither part NUL"
    )]
    #[case::repeated_gpu(
        r#"{"options": "", "gpu_uuids": ["GPU-a", "GPU-b", "GPU-a"]}"#,
        "gpu_uuids: GPU-a is listed twice"
    )]
    fn invalid_requests(#[case] body: &str, #[case] expected: &str) {
        assert_eq!(parse(body), Err(expected.to_owned()));
    }

    #[rstest]
    #[case::flag(r#"{"options": "--model m --port 8005"}"#, Some(8005))]
    #[case::last_flag(r#"{"args": ["--port=1", "--port=2"], "annotations": {"inference-port": "3"}}"#, Some(2))]
    #[case::annotation(r#"{"options": "--ports 9", "annotations": {"inference-port": "3"}}"#, Some(3))]
    #[case::unknown(r#"{"command": ["sleep", "9"]}"#, None)]
    #[case::not_a_port(r#"{"options": "--port"}"#, None)]
    fn ports(#[case] body: &str, #[case] expected: Option<u16>) {
        assert_eq!(parse(body).unwrap().port(), expected);
    }

    #[rstest]
    #[case::of_the_deployed_controller("I47DEQpj8HBSa-_TImW-5JCeuQeRkm5NMpJWZG3hSuFU=i", true)]
    #[case::directory("../a", false)]
    #[case::separator("a/b", false)]
    #[case::empty("", false)]
    fn ids(#[case] id: &str, #[case] is_valid: bool) {
        assert_eq!(validate_id(id).is_ok(), is_valid);
    }
}
