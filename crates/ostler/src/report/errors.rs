//! One line with the cause, and a `hint:` line where there is a remedy.

use std::fmt;
use std::io;

use api::manifest::ManifestError;

/// An error with a remedy.
#[derive(Debug)]
pub(crate) struct Hinted {
    pub cause: String,
    pub hint: String,
}

impl fmt::Display for Hinted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.cause)
    }
}

impl std::error::Error for Hinted {}

/// `cause`, with what to do about it.
pub(crate) fn hinted(cause: impl Into<String>, hint: impl Into<String>) -> anyhow::Error {
    Hinted { cause: cause.into(), hint: hint.into() }.into()
}

/// `error: …` and, where known, `hint: …`.
pub(crate) fn render(error: &anyhow::Error) -> String {
    let line = format!("error: {}", chain(error).replace('\n', " "));
    match error.chain().find_map(remedy) {
        Some(hint) => format!("{line}\nhint: {hint}"),
        None => line,
    }
}

/// The causes, outermost first. Libraries repeat a cause inside the message above it; it is said once.
fn chain(error: &anyhow::Error) -> String {
    let mut said: Vec<String> = Vec::new();
    for cause in error.chain() {
        let text = match cause.downcast_ref::<kube::Error>() {
            Some(kube::Error::Api(status)) => status.message.clone(),
            // Followed by an excerpt of the file, which may hold credentials.
            _ if cause.is::<kube::config::KubeconfigError>() => first_line(cause),
            _ => cause.to_string(),
        };
        // A status says the message again, and its reason.
        let is_said = said.last().is_some_and(|before| before.contains(&text) || text.starts_with(before.as_str()));
        if !is_said {
            said.push(text);
        }
    }
    said.join(": ")
}

fn first_line(cause: &(dyn std::error::Error + 'static)) -> String {
    cause.to_string().lines().next().unwrap_or_default().to_owned()
}

fn remedy(cause: &(dyn std::error::Error + 'static)) -> Option<String> {
    if let Some(hinted) = cause.downcast_ref::<Hinted>() {
        return Some(hinted.hint.clone());
    }
    if let Some(manifest) = cause.downcast_ref::<ManifestError>() {
        return manifest.hint.clone();
    }
    if let Some(kube::Error::Api(status)) = cause.downcast_ref()
        && status.message.contains("field not declared in schema")
    {
        return Some("remove or correct the field: `ostler lint -f` names the nearest known one".to_owned());
    }
    if let Some(kube::Error::Service(_) | kube::Error::HyperError(_)) = cause.downcast_ref() {
        return Some("the cluster does not answer: is it running, and is this its kubeconfig?".to_owned());
    }
    match cause.downcast_ref::<kube::config::KubeconfigError>() {
        Some(_) => Some("name a kubeconfig with --kubeconfig, or start a cluster with `ostler up`".to_owned()),
        None => cause.downcast_ref::<io::Error>().and_then(|error| io_remedy(error.kind())).map(str::to_owned),
    }
}

fn io_remedy(kind: io::ErrorKind) -> Option<&'static str> {
    match kind {
        io::ErrorKind::InvalidData => Some("manifests are text in UTF-8; is this another kind of file?"),
        io::ErrorKind::PermissionDenied => Some("you may not read or write there: `ls -l` shows who may"),
        io::ErrorKind::NotFound => Some("check the path"),
        io::ErrorKind::IsADirectory => Some("name a file, not a folder"),
        io::ErrorKind::NotADirectory | io::ErrorKind::AlreadyExists => Some("name a folder, not a file"),
        io::ErrorKind::StorageFull => Some("free some space, or write elsewhere"),
        io::ErrorKind::BrokenPipe | io::ErrorKind::UnexpectedEof => None,
        _ => Some("check the path and its medium: what cannot be read or written there cannot be used"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_cluster_refuses_is_said_once() {
        let message = "failed to create typed patch object: .spec.modle: field not declared in schema";
        let status = kube::core::Status { message: message.to_owned(), code: 500, ..Default::default() };
        let error = anyhow::Error::new(kube::Error::Api(Box::new(status))).context("f.yaml, document 1");
        assert_eq!(
            render(&error),
            format!(
                "error: f.yaml, document 1: {message}\nhint: remove or correct the field: `ostler lint -f` names the nearest known one"
            )
        );
    }

    #[test]
    fn cause_first_then_the_remedy() {
        let error = hinted("address 127.0.0.1:8080 is in use", "choose another with --gateway").context("gateway");
        assert_eq!(
            render(&error),
            "error: gateway: address 127.0.0.1:8080 is in use\nhint: choose another with --gateway"
        );
    }
}
