//! Serves an empty cluster and writes its kubeconfig: `cargo run -p embedded --example serve -- 127.0.0.1:6443 kubeconfig`.

use std::future::pending;
use std::sync::Arc;

use embedded::ports::{ContainerConfig, ContainerExit, ContainerRuntime, NoDevices, Ports, ServerPorts, TcpNetwork};
use embedded::{Cluster, Credentials, Server, kubeconfig, serve, write_kubeconfig};
use futures::future::BoxFuture;
use mimalloc::MiMalloc;
use tokio_util::sync::CancellationToken;

/// The allocator of the binary.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

/// A container runtime that starts no processes. Its containers are reported as running until they are stopped.
struct IdleRuntime;

impl ContainerRuntime for IdleRuntime {
    fn run(&self, _container: ContainerConfig, stop: CancellationToken) -> BoxFuture<'static, ContainerExit> {
        Box::pin(async move {
            stop.cancelled().await;
            ContainerExit { code: 0, message: String::new() }
        })
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let address = arguments.next().unwrap_or_else(|| "127.0.0.1:0".to_owned());
    let path = arguments.next().unwrap_or_else(|| "kubeconfig".to_owned());
    let ports = Ports {
        server: ServerPorts::default(),
        runtime: Arc::new(IdleRuntime),
        network: Arc::new(TcpNetwork),
        devices: Arc::new(NoDevices),
    };
    let listener = std::net::TcpListener::bind(address)?;
    let credentials = Credentials::generate()?;
    let url = format!("https://{}", listener.local_addr()?);
    write_kubeconfig(path.as_ref(), &kubeconfig(&credentials, &url, &[]))?;
    if std::env::args().any(|argument| argument == "--bare") {
        serve(Server::new(&ports.server), listener, &credentials, CancellationToken::new()).await?;
    } else {
        let node = serde_json::json!({"metadata": {"name": "node-1"}, "status": {"allocatable": {"cpu": "8", "memory": "16Gi", "pods": "100"}}});
        let cluster = Cluster::start(ports, vec![node])?;
        serve(cluster.server().clone(), listener, &credentials, CancellationToken::new()).await?;
    }
    pending().await
}
