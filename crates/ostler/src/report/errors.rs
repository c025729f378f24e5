//! Renders errors: one line with the cause, and a `hint:` line if there is a remedy.

use std::fmt;
use std::io;

use api::ManifestError;
use cluster::CredentialPluginError;

/// An error with a hint.
#[derive(Debug)]
pub(crate) struct HintedError {
    pub cause: String,
    pub hint: String,
}

// === impl HintedError ===

impl fmt::Display for HintedError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.cause)
    }
}

impl std::error::Error for HintedError {}

/// Returns an error with a cause and a hint, which describes the remedy.
pub(crate) fn error_with_hint(cause: impl Into<String>, hint: impl Into<String>) -> anyhow::Error {
    HintedError { cause: cause.into(), hint: hint.into() }.into()
}

/// Renders `error: …` and, if known, `hint: …` on the next line.
pub(crate) fn render(error: &anyhow::Error) -> String {
    lines(error).join("\n")
}

/// Renders an error like a finding of `ostler lint`: the hint is indented.
pub(crate) fn render_finding(error: &anyhow::Error) -> String {
    lines(error).join("\n  ")
}

/// Returns `error: …` and, if known, `hint: …`.
fn lines(error: &anyhow::Error) -> Vec<String> {
    let line = format!("error: {}", cluster::error_chain(error.as_ref()));
    let hint = error.chain().find_map(hint_for).map(|hint| format!("hint: {hint}"));
    [line].into_iter().chain(hint).collect()
}

fn hint_for(cause: &(dyn std::error::Error + 'static)) -> Option<String> {
    if let Some(error_with_hint) = cause.downcast_ref::<HintedError>() {
        return Some(error_with_hint.hint.clone());
    }
    if let Some(manifest) = cause.downcast_ref::<ManifestError>() {
        return manifest.hint.clone();
    }
    if let Some(error) = plugin_error(cause) {
        return Some(error.hint());
    }
    // The API server reports this error without a reason or a cause that names the field.
    if let Some(kube::Error::Api(status)) = cause.downcast_ref()
        && status.message.contains("field not declared in schema")
    {
        return Some("remove or correct the field; `ostler lint -f` suggests the most similar known field".to_owned());
    }
    if let Some(kube::Error::Service(_) | kube::Error::HyperError(_)) = cause.downcast_ref() {
        return Some("check that the cluster is running and that the kubeconfig belongs to it".to_owned());
    }
    match cause.downcast_ref::<kube::config::KubeconfigError>() {
        Some(_) => Some("set a kubeconfig with --kubeconfig, or start a cluster with `ostler up`".to_owned()),
        None => cause.downcast_ref::<io::Error>().and_then(|error| io_hint(error.kind())).map(str::to_owned),
    }
}

/// Returns the error of a credential plugin, which may be in an error of the Kubernetes client.
fn plugin_error<'a>(cause: &'a (dyn std::error::Error + 'static)) -> Option<&'a CredentialPluginError> {
    match cause.downcast_ref() {
        Some(kube::Error::Service(error)) => error.downcast_ref(),
        _ => cause.downcast_ref(),
    }
}

fn io_hint(kind: io::ErrorKind) -> Option<&'static str> {
    match kind {
        io::ErrorKind::InvalidData => Some("manifests are UTF-8 text; check that the file is a manifest"),
        io::ErrorKind::PermissionDenied => {
            Some("you have no permission to read or write this path; `ls -l` shows its permissions")
        }
        io::ErrorKind::NotFound => Some("check the path"),
        io::ErrorKind::IsADirectory => Some("specify a file, not a directory"),
        io::ErrorKind::NotADirectory | io::ErrorKind::AlreadyExists => Some("specify a directory, not a file"),
        io::ErrorKind::StorageFull => Some("free disk space or choose another path"),
        io::ErrorKind::BrokenPipe | io::ErrorKind::UnexpectedEof => None,
        _ => Some("check the path and the file system"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prints_repeated_api_error_once() {
        let message = "failed to create typed patch object: .spec.modle: field not declared in schema";
        let status = kube::core::Status { message: message.to_owned(), code: 500, ..Default::default() };
        let error = anyhow::Error::new(kube::Error::Api(Box::new(status))).context("f.yaml, document 1");
        assert_eq!(
            render(&error),
            format!(
                "error: f.yaml, document 1: {message}\nhint: remove or correct the field; `ostler lint -f` suggests the most similar known field"
            )
        );
    }

    #[test]
    fn prints_transport_errors_without_the_name_of_their_type() {
        let error = anyhow::Error::new(kube::Error::Service("connection refused".into())).context("nodes");
        let hint = "check that the cluster is running and that the kubeconfig belongs to it";
        assert_eq!(render(&error), format!("error: nodes: connection refused\nhint: {hint}"));
    }

    #[test]
    fn prints_cause_and_hint() {
        let error =
            error_with_hint("address 127.0.0.1:8080 is in use", "choose another one with --gateway").context("gateway");
        assert_eq!(
            render(&error),
            "error: gateway: address 127.0.0.1:8080 is in use\nhint: choose another one with --gateway"
        );
    }
}
