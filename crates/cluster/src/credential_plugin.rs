//! Credentials from a plugin: a program that the kubeconfig names, for example a command of a cloud provider.
//!
//! `kube` runs the plugin again before a token expires and waits for it without a limit. Here, requests share one plugin, each
//! request waits for it for a limited time, and the end of the process does not wait for it. `kube` cannot end a plugin that
//! hangs; it is abandoned after [`ATTEMPT_TIMEOUT`], so that clients recover without a restart of the process.
//! Errors contain neither the arguments and environment variables of the plugin nor its output, which may be confidential.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::{BoxFuture, Shared, ready};
use http::header::AUTHORIZATION;
use http::{HeaderValue, Request, Response};
use kube::client::{AuthError, Body, ConfigExt as _};
use kube::config::AuthInfo;
use kube::{Client, Config};
use tokio::runtime::{Builder, Handle, Runtime};
use tokio::time::{Instant, timeout};
use tower::util::BoxService;
use tower::{BoxError, Layer as _, Service as _, service_fn};

/// Longest time that a client waits for a credential plugin.
pub const CREDENTIAL_PLUGIN_TIMEOUT: Duration = Duration::from_secs(25);

/// How long a plugin may run before it is abandoned and a request starts it again. A login in a browser may take longer than
/// a request waits.
const ATTEMPT_TIMEOUT: Duration = Duration::from_secs(60);

/// Maximum number of abandoned plugins: each occupies a thread and a process until it ends. No further plugin is started until
/// one of them ends.
const MAX_ABANDONED: usize = 8;

/// The credential plugin did not provide credentials.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CredentialPluginError {
    /// It has been running for [`CREDENTIAL_PLUGIN_TIMEOUT`].
    #[error(
        "kubeconfig: the credential plugin `{plugin}` did not return credentials within {} s",
        CREDENTIAL_PLUGIN_TIMEOUT.as_secs()
    )]
    Timeout {
        /// Command of the plugin without arguments.
        plugin: String,
    },
    /// It failed, or its output is invalid.
    #[error("kubeconfig: the credential plugin `{plugin}` failed: {cause}")]
    Failed {
        /// Command of the plugin without arguments.
        plugin: String,
        /// Error of the plugin.
        cause: String,
    },
}

/// Result of obtaining the header `Authorization`.
type Authorization = Result<HeaderValue, CredentialPluginError>;

/// Future of an [`Authorization`] for which several requests can wait.
type SharedAuthorization = Shared<BoxFuture<'static, Authorization>>;

/// Provides the header `Authorization` from the tokens of a plugin.
struct TokenSource {
    plugin: String,
    /// Starts to obtain a header: immediately available unless the token is about to expire.
    obtain: Box<dyn Fn() -> BoxFuture<'static, Result<HeaderValue, BoxError>> + Send + Sync>,
    attempts: Mutex<Attempts>,
    threads: PluginThreads,
}

/// The attempts to obtain a header.
#[derive(Default)]
struct Attempts {
    /// The last attempt and its start.
    last: Option<(SharedAuthorization, Instant)>,
    /// Attempts that did not end within [`ATTEMPT_TIMEOUT`].
    abandoned: Vec<SharedAuthorization>,
}

/// Threads that wait for plugins. Unlike those of the main runtime, they do not delay the end of the process.
struct PluginThreads(Option<Runtime>);

/// A service that sends requests with the tokens of a plugin.
type AuthorizedService = BoxService<Request<Body>, Response<Body>, BoxError>;

/// Returns the command, without arguments, that provides the credentials, if there is one.
#[must_use]
pub fn credential_plugin(auth_info: &AuthInfo) -> Option<String> {
    if let Some(exec) = &auth_info.exec {
        return Some(exec.command.clone().unwrap_or_default());
    }
    let provider = auth_info.auth_provider.as_ref()?;
    Some(provider.config.get("cmd-path").cloned().unwrap_or_else(|| provider.name.clone()))
}

/// Returns an error of creating a client, without what may be confidential if the configuration has a plugin.
pub(crate) fn creation_error(plugin: Option<String>, error: kube::Error) -> kube::Error {
    match (plugin, error) {
        (Some(plugin), kube::Error::Auth(error)) => {
            kube::Error::Service(CredentialPluginError::Failed { plugin, cause: cause(&error) }.into())
        }
        (_, error) => error,
    }
}

/// Returns a service that sends the tokens of the plugin, or `None` if the configuration has no plugin or the plugin provides
/// a certificate. `build` creates a client without these tokens. Runs the plugin once.
pub(crate) fn service_with_plugin(
    config: &Config,
    build: impl FnOnce(Config) -> Result<Client, kube::Error>,
) -> Result<Option<AuthorizedService>, kube::Error> {
    let Some(plugin) = credential_plugin(&config.auth_info) else { return Ok(None) };
    let Some(layer) = config.auth_layer()? else { return Ok(None) };
    // The layer adds the header to a request; this service responds with the header of the request.
    let echo = service_fn(|mut request: Request<Body>| {
        let mut response = Response::new(());
        response.headers_mut().extend(request.headers_mut().remove(AUTHORIZATION).map(|value| (AUTHORIZATION, value)));
        ready(Ok::<_, BoxError>(response))
    });
    let headers = layer.layer(echo);
    let obtain = move || {
        let mut headers = headers.clone();
        let response = headers.call(Request::new(Body::empty()));
        let header = async move {
            let mut response = response.await?;
            response.headers_mut().remove(AUTHORIZATION).ok_or_else(|| BoxError::from(AuthError::ExecPluginFailed))
        };
        header.boxed()
    };
    let threads = PluginThreads::new()?;
    let source = TokenSource { plugin, obtain: Box::new(obtain), attempts: Mutex::default(), threads };
    let client = build(without_token(config.clone()))?;
    Ok(Some(with_authorization(client, source)))
}

/// Removes what `kube` creates the header `Authorization` from.
fn without_token(mut config: Config) -> Config {
    let auth_info = &mut config.auth_info;
    (auth_info.exec, auth_info.auth_provider) = (None, None);
    (auth_info.token, auth_info.token_file) = (None, None);
    (auth_info.username, auth_info.password) = (None, None);
    config
}

/// Returns a service that adds the header from `source` to the requests of `client`.
fn with_authorization(client: Client, source: TokenSource) -> AuthorizedService {
    let source = Arc::new(source);
    BoxService::new(service_fn(move |mut request: Request<Body>| {
        let (client, source) = (client.clone(), Arc::clone(&source));
        async move {
            request.headers_mut().insert(AUTHORIZATION, source.authorization().await?);
            client.send(request).await.map_err(BoxError::from)
        }
    }))
}

/// Returns the message of an error of the plugin without its command line and output.
fn cause(error: &AuthError) -> String {
    match error {
        AuthError::AuthExecRun { status, .. } => status.to_string(),
        AuthError::AuthExecParse(_) => "its output is not an ExecCredential".to_owned(),
        error => error.to_string(),
    }
}

// === impl CredentialPluginError ===

impl CredentialPluginError {
    /// Returns what the user can do.
    #[must_use]
    pub fn hint(&self) -> String {
        match self {
            CredentialPluginError::Timeout { plugin } => {
                format!(
                    "run `{plugin}` with its arguments in the kubeconfig to see what it waits for, for example a login, and then \
                     retry"
                )
            }
            CredentialPluginError::Failed { plugin, .. } => {
                format!("run `{plugin}` with its arguments in the kubeconfig to see why it fails, and then retry")
            }
        }
    }
}

// === impl TokenSource ===

impl TokenSource {
    async fn authorization(&self) -> Authorization {
        let timeout_error = CredentialPluginError::Timeout { plugin: self.plugin.clone() };
        timeout(CREDENTIAL_PLUGIN_TIMEOUT, self.current_attempt()).await.unwrap_or(Err(timeout_error))
    }

    /// Returns the attempt in progress, or a new one.
    fn current_attempt(&self) -> SharedAuthorization {
        let mut attempts = self.attempts.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(attempt) = attempts.in_progress(Instant::now()) {
            return attempt;
        }
        let (plugin, authorization) = (self.plugin.clone(), (self.obtain)());
        let authorization = authorization.map(move |result| {
            result.map_err(|error| {
                let cause = error.downcast_ref().map_or_else(|| error.to_string(), cause);
                CredentialPluginError::Failed { plugin, cause }
            })
        });
        let attempt = self.threads.run(authorization.boxed()).shared();
        attempts.last = Some((attempt.clone(), Instant::now()));
        attempt
    }
}

// === impl Attempts ===

impl Attempts {
    /// Returns the last attempt if it is in progress. Abandons it once it has been running for too long, unless too many
    /// abandoned plugins still run.
    fn in_progress(&mut self, now: Instant) -> Option<SharedAuthorization> {
        // An attempt makes progress only when it is polled.
        self.abandoned.retain(|attempt| attempt.clone().now_or_never().is_none());
        let (attempt, start) = self.last.clone().filter(|(attempt, _)| attempt.peek().is_none())?;
        if now.duration_since(start) < ATTEMPT_TIMEOUT || self.abandoned.len() >= MAX_ABANDONED {
            return Some(attempt);
        }
        if attempt.clone().now_or_never().is_none() {
            self.abandoned.push(attempt);
        }
        self.last = None;
        None
    }
}

// === impl PluginThreads ===

impl PluginThreads {
    fn new() -> Result<PluginThreads, kube::Error> {
        let runtime = Builder::new_current_thread().build().map_err(|error| kube::Error::Service(error.into()))?;
        Ok(PluginThreads(Some(runtime)))
    }

    /// Returns a future whose blocking tasks run on these threads.
    fn run<T: 'static>(&self, mut future: BoxFuture<'static, T>) -> BoxFuture<'static, T> {
        let handle: Option<Handle> = self.0.as_ref().map(|runtime| runtime.handle().clone());
        let poll = poll_fn(move |context| {
            let _guard = handle.as_ref().map(Handle::enter);
            Pin::new(&mut future).poll(context)
        });
        poll.boxed()
    }
}

impl Drop for PluginThreads {
    fn drop(&mut self) {
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use serde_json::json;

    use super::*;
    use crate::client::{client_of_service, new_client};

    /// Returns a configuration whose credential plugin is the shell script.
    fn config(script: &str) -> Config {
        let exec = json!({"apiVersion": "client.authentication.k8s.io/v1", "command": "sh", "args": ["-c", script],
            "interactiveMode": "Never"});
        let mut config = Config::new("http://127.0.0.1:9".parse().unwrap());
        config.auth_info = serde_json::from_value(json!({"exec": exec})).unwrap();
        config
    }

    /// Returns a script that appends a line to `calls`, prints a token that has expired, and then runs `then`.
    fn script(calls: &Path, then: &str) -> String {
        let credential = json!({"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential",
            "status": {"token": "secret", "expirationTimestamp": "2020-01-01T00:00:00Z"}});
        format!(
            "echo >> {calls}; test $(wc -l < {calls}) -eq 1 || {then}; echo '{credential}'",
            calls = calls.display()
        )
    }

    /// Returns a client whose requests are answered with their header `Authorization`.
    fn client(config: &Config) -> Client {
        let echo = service_fn(|request: Request<Body>| {
            let header = request.headers()[AUTHORIZATION].to_str().unwrap().to_owned();
            ready(Ok::<_, BoxError>(Response::new(Body::from(header.into_bytes()))))
        });
        let service = service_with_plugin(config, |config| {
            assert_eq!(credential_plugin(&config.auth_info), None);
            Ok(Client::new(echo, "default"))
        });
        client_of_service(service.unwrap().unwrap(), "default")
    }

    async fn get(client: &Client) -> Result<String, kube::Error> {
        client.request_text(Request::get("/version").body(Vec::new()).unwrap()).await
    }

    /// The paused time advances while the plugin runs.
    #[tokio::test(start_paused = true)]
    async fn refresh_that_hangs_is_an_error() {
        let calls = tempfile::NamedTempFile::new().unwrap();
        let client = client(&config(&script(calls.path(), "exec sleep 3")));
        let kube::Error::Service(error) = get(&client).await.unwrap_err() else { panic!("not an error of the plugin") };
        let error = error.downcast::<CredentialPluginError>().unwrap();
        assert!(matches!(*error, CredentialPluginError::Timeout { .. }), "{error}");
        assert!(error.to_string().ends_with("did not return credentials within 25 s"), "{error}");
    }

    /// Returns a source whose plugin hangs at the first `hanging` starts, and the number of starts.
    fn source(hanging: usize) -> (TokenSource, Arc<AtomicUsize>) {
        let starts = Arc::new(AtomicUsize::new(0));
        let counter = Arc::clone(&starts);
        let obtain = move || match counter.fetch_add(1, Ordering::Relaxed) {
            start if start < hanging => std::future::pending().boxed(),
            _ => ready(Ok(HeaderValue::from_static("Bearer secret"))).boxed(),
        };
        let source = TokenSource {
            plugin: "plugin".to_owned(),
            obtain: Box::new(obtain),
            attempts: Mutex::default(),
            threads: PluginThreads::new().unwrap(),
        };
        (source, starts)
    }

    #[tokio::test(start_paused = true)]
    async fn plugin_that_hung_is_started_again_after_a_minute() {
        let (source, starts) = source(1);
        let timeout = Err(CredentialPluginError::Timeout { plugin: "plugin".to_owned() });
        for _ in 0..3 {
            assert_eq!(source.authorization().await, timeout);
        }
        assert_eq!(starts.load(Ordering::Relaxed), 1);
        assert_eq!(source.authorization().await.unwrap(), "Bearer secret");
        assert_eq!(starts.load(Ordering::Relaxed), 2);
    }

    #[tokio::test(start_paused = true)]
    async fn number_of_abandoned_plugins_is_limited() {
        let (source, starts) = source(usize::MAX);
        for _ in 0..100 {
            source.authorization().await.unwrap_err();
        }
        assert_eq!(starts.load(Ordering::Relaxed), MAX_ABANDONED + 1);
    }

    #[tokio::test(start_paused = true)]
    async fn abandoned_plugin_that_ended_is_not_counted() {
        let mut attempts = Attempts::default();
        let (end, ended) = tokio::sync::oneshot::channel::<()>();
        let hanging = ended.map(|_| Ok(HeaderValue::from_static("late"))).boxed().shared();
        attempts.last = Some((hanging, Instant::now()));
        assert!(attempts.in_progress(Instant::now() + ATTEMPT_TIMEOUT).is_none());
        assert_eq!(attempts.abandoned.len(), 1);
        end.send(()).unwrap();
        assert!(attempts.in_progress(Instant::now()).is_none());
        assert_eq!(attempts.abandoned.len(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn plugin_and_request_have_a_common_deadline() {
        let obtain = || {
            let header =
                tokio::time::sleep(Duration::from_secs(20)).map(|()| Ok(HeaderValue::from_static("Bearer secret")));
            header.boxed()
        };
        let source = TokenSource {
            plugin: "plugin".to_owned(),
            obtain: Box::new(obtain),
            attempts: Mutex::default(),
            threads: PluginThreads::new().unwrap(),
        };
        let unresponsive = service_fn(|_: Request<Body>| std::future::pending::<Result<Response<Body>, BoxError>>());
        let service = with_authorization(Client::new(unresponsive, "default"), source);
        let start = tokio::time::Instant::now();
        let error = get(&client_of_service(service, "default")).await.unwrap_err().to_string();
        assert!(error.contains("did not complete the request within 30 s"), "{error}");
        assert_eq!(start.elapsed().as_secs(), 30);
    }

    #[tokio::test]
    async fn errors_contain_neither_arguments_nor_output() {
        let calls = tempfile::NamedTempFile::new().unwrap();
        let fails =
            format!("(echo confidential; echo confidential >&2; exit 3) || exit 3; test {}", calls.path().display());
        for script in ["echo '{confidential'", "echo confidential; echo confidential >&2; exit 3"] {
            let error = new_client(config(script)).err().unwrap();
            let text = format!("{error} {error:?}");
            assert!(text.contains("`sh`") || text.contains("\"sh\""), "{text}");
            assert!(!text.contains("confidential"), "{text}");
        }
        let error = get(&client(&config(&script(calls.path(), &fails)))).await.unwrap_err();
        let text = format!("{error} {error:?}");
        assert!(text.contains("exit status: 3") && !text.contains("confidential"), "{text}");
    }

    #[tokio::test]
    async fn requests_have_the_token_of_the_refresh() {
        let calls = tempfile::NamedTempFile::new().unwrap();
        let client = client(&config(&script(calls.path(), "true")));
        assert_eq!(get(&client).await.unwrap(), "Bearer secret");
        assert_eq!(get(&client).await.unwrap(), "Bearer secret");
        let calls = std::fs::read_to_string(calls.path()).unwrap().lines().count();
        assert_eq!(calls, 3, "expired tokens are refreshed");
    }

    #[tokio::test]
    async fn refresh_that_fails_is_an_error_of_its_own_request() {
        let calls = tempfile::NamedTempFile::new().unwrap();
        let fails_once = format!("test $(wc -l < {}) -gt 2 || exit 3", calls.path().display());
        let client = client(&config(&script(calls.path(), &fails_once)));
        let error = get(&client).await.unwrap_err().to_string();
        assert!(error.contains("exit status: 3"), "{error}");
        assert_eq!(get(&client).await.unwrap(), "Bearer secret", "the next request runs the plugin again");
    }

    #[test]
    fn names_the_command_of_the_plugin() {
        assert_eq!(credential_plugin(&config("exit").auth_info).unwrap(), "sh");
        assert_eq!(credential_plugin(&AuthInfo::default()), None);
    }
}
