//! An API server without nodes: nothing runs on it.

use std::sync::Arc;

use embedded::Server;
use embedded::ports::{AdmitAll, Container, Exit, Loopback, Ports, Runner, SystemClock, SystemRandom};
use futures::future::BoxFuture;
use tokio_util::sync::CancellationToken;

struct NoRunner;

impl Runner for NoRunner {
    fn run(&self, _: Container, _: CancellationToken) -> BoxFuture<'static, Exit> {
        Box::pin(async { Exit { code: 1, message: String::new() } })
    }
}

pub(crate) fn start() -> Server {
    Server::new(&Ports {
        clock: Arc::new(SystemClock),
        random: Arc::new(SystemRandom),
        admission: Arc::new(AdmitAll),
        runner: Arc::new(NoRunner),
        network: Arc::new(Loopback),
    })
}
