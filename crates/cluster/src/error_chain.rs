//! The text of an error with its causes.

use std::error::Error;

use kube::runtime::watcher;

/// Returns an error and its causes on one line, outermost first. A cause that the preceding text contains is omitted.
#[must_use]
pub fn error_chain(error: &(dyn Error + 'static)) -> String {
    let mut texts = vec![text(error)];
    let mut cause = error.source();
    while let Some(error) = cause {
        let text = text(error);
        if !texts.last().is_some_and(|previous| previous.contains(&text)) {
            texts.push(text);
        }
        cause = error.source();
    }
    texts.join(": ").replace('\n', " ")
}

/// Returns the text of one error for users: those of `kube` contain names of Rust types and the whole response.
fn text(error: &(dyn Error + 'static)) -> String {
    if let Some(error) = downcast::<kube::Error>(error) {
        return client_error_text(error);
    }
    if let Some(error) = downcast::<watcher::Error>(error) {
        return watch_error_text(error);
    }
    if let Some(status) = downcast::<kube::core::Status>(error) {
        return status.message.clone();
    }
    // Omit further lines: they quote the kubeconfig, which may contain credentials.
    if error.is::<kube::config::KubeconfigError>() {
        return error.to_string().lines().next().unwrap_or_default().to_owned();
    }
    error.to_string()
}

/// Returns the error if it is a `T`, which may be in a box.
fn downcast<'a, T: Error + 'static>(error: &'a (dyn Error + 'static)) -> Option<&'a T> {
    error.downcast_ref::<T>().or_else(|| error.downcast_ref::<Box<T>>().map(Box::as_ref))
}

/// Returns the text of an error of the Kubernetes client for users.
pub(crate) fn client_error_text(error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) => status.message.clone(),
        kube::Error::Service(error) => error.to_string(),
        error => error.to_string(),
    }
}

fn watch_error_text(error: &watcher::Error) -> String {
    match error {
        watcher::Error::InitialListFailed(error) => format!("failed to list: {}", client_error_text(error)),
        watcher::Error::WatchStartFailed(error) => format!("failed to start the watch: {}", client_error_text(error)),
        watcher::Error::WatchFailed(error) => format!("the watch ended: {}", client_error_text(error)),
        watcher::Error::WatchError(status) => format!("the API server ended the watch: {}", status.message),
        error @ watcher::Error::NoResourceVersion => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Error;

    #[test]
    fn contains_the_message_of_the_api_server_once() {
        let status = kube::core::Status { message: "namespaces \"x\" not found".to_owned(), ..Default::default() };
        let source = Box::new(kube::Error::Api(Box::new(status)));
        let error = Error::Request { action: "apply", object: "Service x/chat".to_owned(), source };
        let text = "failed to apply Service x/chat: namespaces \"x\" not found";
        assert_eq!((error.to_string().as_str(), error_chain(&error).as_str()), (text, text));
    }

    #[test]
    fn describes_errors_of_watches() {
        let status = kube::core::Status { message: "pods is forbidden".to_owned(), ..Default::default() };
        let error = watcher::Error::InitialListFailed(kube::Error::Api(Box::new(status)));
        assert_eq!(error_chain(&error), "failed to list: pods is forbidden");
    }

    #[test]
    fn omits_the_names_of_types() {
        let error = kube::Error::Service("connection\nrefused".into());
        assert_eq!(error_chain(&error), "connection refused");
    }
}
