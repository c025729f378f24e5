//! How `ostler up` runs containers: every engine command line becomes a simulated engine inside this process.

use std::io;
use std::net::SocketAddr;

use embedded::ports::{Container, Exit, Purpose, Runner};
use engine::launch_line::{self, LaunchLine};
use futures::future::{BoxFuture, FutureExt, ready};
use tokio_util::sync::CancellationToken;

/// Exit code of a process that SIGTERM ended, as a shell reports it.
const TERMINATED: i32 = 143;

/// Runs engines as simulated ones; any other container does nothing until it is stopped, and its log says so.
pub(crate) struct SimulatedRunner;

impl Runner for SimulatedRunner {
    fn run(&self, container: Container, stop: CancellationToken) -> BoxFuture<'static, Exit> {
        let line = launch_line::parse(&container.command, &container.args, &container.env);
        match (container.purpose, line) {
            (Purpose::Serve, Some(line)) => serve(container, line, stop).boxed(),
            (Purpose::Serve, None) => idle(container, stop).boxed(),
            (Purpose::Initialise, _) => {
                container.log.write_line(&format!("image {}: simulated, nothing to prepare", container.image));
                ready(Exit { code: 0, message: String::new() }).boxed()
            }
            // A simulated engine that runs is well; one that does not has no probe asked.
            (Purpose::Probe, _) => ready(Exit { code: 0, message: String::new() }).boxed(),
        }
    }
}

async fn serve(container: Container, line: LaunchLine, stop: CancellationToken) -> Exit {
    let config = engine::Config::from_launch_line(&line, container.address);
    let address = SocketAddr::new(config.address, config.port);
    container.log.write_line(&format!(
        "simulated engine for image {}: serving {} on {address}",
        container.image,
        config.base_name()
    ));
    match engine::run(config, stop).await {
        Ok(()) => Exit { code: 0, message: String::new() },
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => failed(&container, &format!("PortInUse: {address}")),
        Err(error) => failed(&container, &format!("{address}: {error}")),
    }
}

async fn idle(container: Container, stop: CancellationToken) -> Exit {
    let image = &container.image;
    container
        .log
        .write_line(&format!("image {image} is not an engine known here: simulated, does nothing until stopped"));
    stop.cancelled().await;
    Exit { code: TERMINATED, message: String::new() }
}

fn failed(container: &Container, message: &str) -> Exit {
    container.log.write_line(message);
    Exit { code: 1, message: message.to_owned() }
}
