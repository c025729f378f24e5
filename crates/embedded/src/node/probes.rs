//! Startup, readiness and liveness probes.
//!
//! As a kubelet does them, with one difference: until a container has been ready once, it is also asked between the
//! regular turns, after 50 ms and then at doubling distances. A failure of such an early question does not count, a success
//! does, so an engine is ready when it answers and not up to `periodSeconds` later.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Empty;
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::time::{Instant, sleep_until, timeout};
use tokio_util::sync::CancellationToken;

use super::logs::LogSink;
use super::unverified;
use crate::object;
use crate::ports::{Container, Network, Purpose, Runner};

/// One probe, with Kubernetes' defaults filled in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Probe {
    delay: Duration,
    period: Duration,
    timeout: Duration,
    /// Successes in a row until it passes.
    passes: u32,
    /// Failures in a row until it fails.
    fails: u32,
    question: Question,
}

/// What is asked of a container; hooks ask the same things.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Question {
    Http { scheme: Scheme, host: Option<String>, port: u16, path: String, headers: Vec<(String, String)> },
    Connect { port: u16 },
    Grpc { port: u16, service: String },
    Exec { command: Vec<String> },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Scheme {
    Http,
    /// Certificates are not verified.
    Https,
}

/// The probes of one container.
#[derive(Debug, Clone, Default)]
pub(crate) struct Probes {
    startup: Option<Probe>,
    readiness: Option<Probe>,
    liveness: Option<Probe>,
}

/// What the probes found out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Finding {
    Started,
    Ready,
    Unready,
    /// The first failure of a row: which probe, and why.
    Failed {
        probe: &'static str,
        why: String,
    },
}

/// Who is asked, and by what means.
pub(crate) struct Target {
    pub(crate) network: Arc<dyn Network>,
    pub(crate) runner: Arc<dyn Runner>,
    pub(crate) container: Container,
}

/// Counts answers in a row.
#[derive(Debug, Default)]
struct Tally {
    passed: u32,
    failed: u32,
}

impl Probes {
    /// Reads a container's probes; port names are those of the container.
    pub(crate) fn of(container: &Value) -> Self {
        let probe = |field: &str| Probe::of(container.get(field)?, container);
        Self { startup: probe("startupProbe"), readiness: probe("readinessProbe"), liveness: probe("livenessProbe") }
    }

    /// Asks until a startup or liveness probe fails for good; returns which one.
    pub(crate) async fn watch(&self, target: &Target, tell: &(dyn Fn(Finding) + Send + Sync)) -> &'static str {
        let born = Instant::now();
        if let Some(startup) = &self.startup
            && !startup.until_passed(target, born, tell).await
        {
            return "startup";
        }
        tell(Finding::Started);
        let liveness = async {
            match &self.liveness {
                Some(probe) => probe.until_failed(target, born, tell).await,
                None => std::future::pending().await,
            }
        };
        let readiness = async {
            match &self.readiness {
                Some(probe) => probe.forever(target, born, tell).await,
                None => tell(Finding::Ready),
            }
            std::future::pending::<()>().await;
        };
        tokio::select! {
            () = liveness => "liveness",
            () = readiness => "readiness",
        }
    }
}

impl Probe {
    fn of(spec: &Value, container: &Value) -> Option<Self> {
        let number = |field: &str, default: u32| {
            spec.get(field).and_then(Value::as_u64).and_then(|n| u32::try_from(n).ok()).unwrap_or(default)
        };
        let seconds = |field, default| Duration::from_secs(u64::from(number(field, default)));
        Some(Self {
            delay: seconds("initialDelaySeconds", 0),
            period: seconds("periodSeconds", 10).max(Duration::from_secs(1)),
            timeout: seconds("timeoutSeconds", 1).max(Duration::from_secs(1)),
            passes: number("successThreshold", 1).max(1),
            fails: number("failureThreshold", 3).max(1),
            question: Question::of(spec, container)?,
        })
    }

    /// The startup probe: true when it passed, false when it failed for good.
    async fn until_passed(&self, target: &Target, born: Instant, tell: &(dyn Fn(Finding) + Send + Sync)) -> bool {
        if self.eagerly(target, born).await {
            return true;
        }
        let (mut tally, mut turn) = (Tally::default(), 1);
        loop {
            let result = self.ask(target, born, turn).await;
            turn += 1;
            if let Err(why) = &result
                && tally.failed == 0
            {
                tell(Finding::Failed { probe: "Startup", why: why.clone() });
            }
            tally.count(result.is_ok());
            if tally.passed >= self.passes {
                return true;
            }
            if tally.failed >= self.fails {
                return false;
            }
        }
    }

    /// The liveness probe: returns when it failed for good.
    async fn until_failed(&self, target: &Target, born: Instant, tell: &(dyn Fn(Finding) + Send + Sync)) {
        let mut tally = Tally::default();
        for turn in turn_now(self, born).. {
            let result = self.ask(target, born, turn).await;
            if let Err(why) = &result
                && tally.failed == 0
            {
                tell(Finding::Failed { probe: "Liveness", why: why.clone() });
            }
            tally.count(result.is_ok());
            if tally.failed >= self.fails {
                return;
            }
        }
    }

    /// The readiness probe: tells every change.
    async fn forever(&self, target: &Target, born: Instant, tell: &(dyn Fn(Finding) + Send + Sync)) {
        let mut ready = self.eagerly(target, born).await;
        if ready {
            tell(Finding::Ready);
        }
        let mut tally = Tally::default();
        for turn in turn_now(self, born) + u32::from(ready).. {
            let result = self.ask(target, born, turn).await;
            if let Err(why) = &result
                && tally.failed == 0
            {
                tell(Finding::Failed { probe: "Readiness", why: why.clone() });
            }
            tally.count(result.is_ok());
            if !ready && tally.passed >= self.passes {
                ready = true;
                tell(Finding::Ready);
            } else if ready && tally.failed >= self.fails {
                ready = false;
                tell(Finding::Unready);
            }
        }
    }

    /// Early questions within the first period; true at the first success. Not for a probe that wants several.
    async fn eagerly(&self, target: &Target, born: Instant) -> bool {
        let begin = Instant::now().max(born + self.delay);
        sleep_until(begin).await;
        let mut distance = Duration::from_millis(50);
        let mut at = begin;
        while self.passes == 1 && at < begin + self.period {
            sleep_until(at).await;
            if self.answer(target).await.is_ok() {
                return true;
            }
            at += distance;
            distance *= 2;
        }
        false
    }

    /// Waits for a turn and asks.
    async fn ask(&self, target: &Target, born: Instant, turn: u32) -> Result<(), String> {
        sleep_until(born + self.delay + self.period * turn).await;
        self.answer(target).await
    }

    async fn answer(&self, target: &Target) -> Result<(), String> {
        let answer = self.question.put(target);
        timeout(self.timeout, answer).await.unwrap_or_else(|_| Err(format!("no answer within {:?}", self.timeout)))
    }
}

/// The first regular turn that is not in the past.
fn turn_now(probe: &Probe, born: Instant) -> u32 {
    let since = Instant::now().saturating_duration_since(born + probe.delay);
    u32::try_from(since.as_millis().div_ceil(probe.period.as_millis().max(1))).unwrap_or(u32::MAX)
}

impl Question {
    /// Reads a handler: `httpGet`, `tcpSocket`, `grpc` or `exec`.
    pub(super) fn of(spec: &Value, container: &Value) -> Option<Self> {
        if let Some(get) = spec.get("httpGet") {
            let port = port(get, container)?;
            let scheme = if object::text(get, "/scheme") == "HTTPS" { Scheme::Https } else { Scheme::Http };
            let path = match object::text(get, "/path") {
                "" => "/".to_owned(),
                path if path.starts_with('/') => path.to_owned(),
                path => format!("/{path}"),
            };
            let headers = get.get("httpHeaders").and_then(Value::as_array).into_iter().flatten();
            let pair = |h: &Value| (object::text(h, "/name").to_owned(), object::text(h, "/value").to_owned());
            let host = get.get("host").and_then(Value::as_str).map(str::to_owned);
            return Some(Self::Http { scheme, host, port, path, headers: headers.map(pair).collect() });
        }
        if let Some(grpc) = spec.get("grpc") {
            return Some(Self::Grpc {
                port: port(grpc, container)?,
                service: object::text(grpc, "/service").to_owned(),
            });
        }
        if let Some(connect) = spec.get("tcpSocket") {
            return Some(Self::Connect { port: port(connect, container)? });
        }
        let command = spec.pointer("/exec/command")?.as_array()?;
        Some(Self::Exec { command: command.iter().filter_map(|w| w.as_str().map(str::to_owned)).collect() })
    }

    pub(super) async fn put(&self, target: &Target) -> Result<(), String> {
        let address = target.container.address;
        match self {
            Self::Http { scheme, host, port, path, headers } => {
                let address = host.as_ref().and_then(|host| host.parse().ok()).unwrap_or(address);
                get(target.network.as_ref(), *scheme, SocketAddr::new(address, *port), path, headers).await
            }
            Self::Connect { port } => {
                let connected = target.network.connect(SocketAddr::new(address, *port)).await;
                connected.map(drop).map_err(|error| format!("dial tcp {address}:{port}: {error}"))
            }
            Self::Grpc { port, service } => {
                super::grpc::check(target.network.as_ref(), SocketAddr::new(address, *port), service).await
            }
            Self::Exec { command } => {
                let log = LogSink::default();
                let container = Container {
                    purpose: Purpose::Probe,
                    command: command.clone(),
                    args: Vec::new(),
                    log: log.clone(),
                    ..target.container.clone()
                };
                let exit = target.runner.run(container, CancellationToken::new()).await;
                let output: Vec<u8> = log.lines(None).iter().flat_map(|line| line.to_vec()).collect();
                let why = || format!("exit code {}: {}", exit.code, String::from_utf8_lossy(&output).trim_end());
                (exit.code == 0).then_some(()).ok_or_else(why)
            }
        }
    }
}

fn port(action: &Value, container: &Value) -> Option<u16> {
    let port = action.get("port")?;
    if let Some(name) = port.as_str() {
        let ports = container.get("ports").and_then(Value::as_array).into_iter().flatten();
        let named = ports.filter(|p| object::text(p, "/name") == name).find_map(|p| p.get("containerPort")?.as_u64());
        return named.and_then(|n| u16::try_from(n).ok()).or_else(|| name.parse().ok());
    }
    port.as_u64().and_then(|number| u16::try_from(number).ok())
}

async fn get(
    network: &dyn Network,
    scheme: Scheme,
    address: SocketAddr,
    path: &str,
    headers: &[(String, String)],
) -> Result<(), String> {
    let name = if scheme == Scheme::Https { "https" } else { "http" };
    let url = format!("{name}://{address}{path}");
    let broken = |error: &dyn std::fmt::Display| format!("Get \"{url}\": {error}");
    let mut stream = network.connect(address).await.map_err(|e| broken(&e))?;
    if scheme == Scheme::Https {
        stream = unverified::connect(stream, address.ip()).await.map_err(|e| broken(&e))?;
    }
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.map_err(|e| broken(&e))?;
    let mut request = http::Request::get(path).header("user-agent", "kube-probe/1.33").header("connection", "close");
    if !headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("host")) {
        request = request.header("host", address.to_string());
    }
    for (name, value) in headers {
        request = request.header(name, value);
    }
    let request = request.body(Empty::<Bytes>::new()).map_err(|e| broken(&e))?;
    // The connection only has to be driven: how it ends, the response tells.
    let drive = async {
        let _ = connection.await;
        std::future::pending::<std::convert::Infallible>().await
    };
    let status = tokio::select! {
        response = sender.send_request(request) => response.map_err(|e| broken(&e))?.status(),
        never = drive => match never {},
    };
    if (200..400).contains(&status.as_u16()) {
        return Ok(());
    }
    Err(format!("HTTP probe failed with statuscode: {}", status.as_u16()))
}

impl Tally {
    fn count(&mut self, passed: bool) {
        *self = match passed {
            true => Self { passed: self.passed + 1, failed: 0 },
            false => Self { passed: 0, failed: self.failed + 1 },
        };
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[tokio::test]
    async fn a_probe_over_tls_asks_and_believes_any_certificate() {
        use tokio::io::{AsyncReadExt, AsyncWriteExt};
        let made = rcgen::generate_simple_self_signed(["elsewhere.example".to_owned()]).unwrap();
        let key = rustls::pki_types::PrivatePkcs8KeyDer::from(made.signing_key.serialize_der());
        let config = rustls::ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![made.cert.der().clone()], key.into())
            .unwrap();
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move {
            let acceptor = tokio_rustls::TlsAcceptor::from(Arc::new(config));
            for answer in ["200 OK", "503 Unavailable"] {
                let (stream, _) = listener.accept().await.unwrap();
                let mut stream = acceptor.accept(stream).await.unwrap();
                let _ = stream.read(&mut [0; 1024]).await;
                let answer = format!("HTTP/1.1 {answer}\r\ncontent-length: 0\r\n\r\n");
                stream.write_all(answer.as_bytes()).await.unwrap();
                stream.shutdown().await.ok();
            }
        });
        let ask = || get(&crate::ports::Loopback, Scheme::Https, address, "/", &[]);
        assert_eq!(ask().await, Ok(()));
        assert_eq!(ask().await, Err("HTTP probe failed with statuscode: 503".to_owned()));
    }

    #[test]
    fn defaults_and_named_ports() {
        let container = json!({
            "ports": [{"name": "http", "containerPort": 8000}],
            "readinessProbe": {"httpGet": {"path": "health", "port": "http"}, "failureThreshold": 5},
            "livenessProbe": {"tcpSocket": {"port": 8001}, "initialDelaySeconds": 3},
        });
        let probes = Probes::of(&container);
        let readiness = probes.readiness.unwrap();
        assert_eq!((readiness.period.as_secs(), readiness.timeout.as_secs()), (10, 1));
        assert_eq!((readiness.passes, readiness.fails), (1, 5));
        let Question::Http { port, path, .. } = readiness.question else { panic!() };
        assert_eq!((port, path.as_str()), (8000, "/health"));
        let liveness = probes.liveness.unwrap();
        assert_eq!((liveness.delay.as_secs(), liveness.question), (3, Question::Connect { port: 8001 }));
        assert!(probes.startup.is_none());
    }
}
