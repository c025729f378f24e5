//! API server without nodes; containers are never started successfully.

use std::sync::Arc;

use embedded::Server;
use embedded::ports::{
    AdmitAll, ContainerConfig, ContainerExit, ContainerRuntime, Ports, SystemClock, SystemRandom, TcpNetwork,
};
use futures::future::BoxFuture;
use tokio_util::sync::CancellationToken;

struct FailingRuntime;

impl ContainerRuntime for FailingRuntime {
    fn run(&self, _: ContainerConfig, _: CancellationToken) -> BoxFuture<'static, ContainerExit> {
        Box::pin(async { ContainerExit { code: 1, message: String::new() } })
    }
}

pub(crate) fn start() -> Server {
    Server::new(&Ports {
        clock: Arc::new(SystemClock),
        random: Arc::new(SystemRandom),
        admission: Arc::new(AdmitAll),
        runtime: Arc::new(FailingRuntime),
        network: Arc::new(TcpNetwork),
    })
}
