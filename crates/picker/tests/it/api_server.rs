//! API server without nodes; Pods are never started.

use apiserver::Server;
use apiserver::ports::ServerPorts;

pub(crate) fn start() -> Server {
    Server::new(&ServerPorts::default())
}
