//! Serves an empty cluster and writes its kubeconfig: `cargo run -p embedded --example serve -- 127.0.0.1:6443 kubeconfig`.

use std::future::pending;
use std::sync::Arc;

use embedded::ports::{AdmitAll, Container, Exit, Loopback, Ports, Runner, SystemClock, SystemRandom};
use embedded::{Server, serve};
use futures::future::BoxFuture;
use tokio_util::sync::CancellationToken;

/// Runs nothing: containers stay up until they are asked to stop.
struct Idle;

impl Runner for Idle {
    fn run(&self, _container: Container, stop: CancellationToken) -> BoxFuture<'static, Exit> {
        Box::pin(async move {
            stop.cancelled().await;
            Exit { code: 0, message: String::new() }
        })
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let address = arguments.next().unwrap_or_else(|| "127.0.0.1:0".to_owned());
    let path = arguments.next().unwrap_or_else(|| "kubeconfig".to_owned());
    let ports = Ports {
        clock: Arc::new(SystemClock),
        random: Arc::new(SystemRandom),
        admission: Arc::new(AdmitAll),
        runner: Arc::new(Idle),
        network: Arc::new(Loopback),
    };
    let listener = std::net::TcpListener::bind(address)?;
    let credentials = serve::Credentials::generate()?;
    let url = format!("https://{}", listener.local_addr()?);
    serve::write_kubeconfig(path.as_ref(), &serve::kubeconfig(&credentials, &url))?;
    if std::env::args().any(|argument| argument == "--bare") {
        serve::serve(Server::new(&ports), listener, &credentials, CancellationToken::new()).await?;
    } else {
        let node = serde_json::json!({"metadata": {"name": "here"}, "status": {"allocatable": {"cpu": "8", "memory": "16Gi", "pods": "100"}}});
        let cluster = embedded::cluster::Cluster::start(ports, vec![node]);
        serve::serve(cluster.server().clone(), listener, &credentials, CancellationToken::new()).await?;
    }
    pending().await
}
