//! Containers that run in this process instead of their image: simulated engines, and stubs for everything else.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use embedded::ports::{ContainerConfig, ContainerExit, ContainerPurpose};
use engine::{RequestMemory, ServerCommand};
use futures::future::{BoxFuture, FutureExt, ready};
use tokio_util::sync::CancellationToken;

use crate::container_exit::{exited, failed};
use crate::model_weights;
use crate::node_memories::NodeMemories;
use crate::stub_container;

/// What simulated engines share.
#[derive(Clone, Default)]
pub(crate) struct EngineEnvironment {
    /// Memory for requests.
    pub request_memory: RequestMemory,
    /// Memory of the nodes; `None` means that it is unlimited.
    pub node_memories: Option<Arc<NodeMemories>>,
    /// Whether engines take time to load their weights and to wake up.
    pub load_times: bool,
}

/// Runs a simulated engine, or a stub for containers that are not a known engine.
pub(crate) fn run(
    container: ContainerConfig,
    environment: &EngineEnvironment,
    shutdown: CancellationToken,
) -> BoxFuture<'static, ContainerExit> {
    let command = ServerCommand::parse(&container.command, &container.args, &container.env);
    if let (ContainerPurpose::Service | ContainerPurpose::Init, Some(code)) =
        (container.purpose, fixed_exit_code(&container))
    {
        container
            .log
            .write_line(&format!("image {}: simulated, exits with code {code} like its command", container.image));
        return ready(exited(code)).boxed();
    }
    match (container.purpose, command) {
        (ContainerPurpose::Service, Some(command)) => {
            serve_engine(container, command, environment.clone(), shutdown).boxed()
        }
        (ContainerPurpose::Service, None) => stub_container::run(container, shutdown).boxed(),
        (ContainerPurpose::Init, _) => {
            container.log.write_line(&format!("image {}: simulated init container, completed", container.image));
            ready(exited(0)).boxed()
        }
        // Probes run only while the engine runs, and a running simulated engine is healthy.
        (ContainerPurpose::ExecProbe, _) => ready(exited(0)).boxed(),
    }
}

/// Returns the exit code of a command that only exits: `true`, `false`, or `sh -c 'exit N'`.
fn fixed_exit_code(container: &ContainerConfig) -> Option<i32> {
    let args: Vec<&str> = container.command.iter().chain(&container.args).map(String::as_str).collect();
    match *args.as_slice() {
        ["true" | "/bin/true"] => Some(0),
        ["false" | "/bin/false"] => Some(1),
        [shell, "-c", script] if decide::is_shell(shell) => script.trim().strip_prefix("exit")?.trim().parse().ok(),
        _ => None,
    }
}

async fn serve_engine(
    container: ContainerConfig,
    command: ServerCommand,
    environment: EngineEnvironment,
    shutdown: CancellationToken,
) -> ContainerExit {
    let mut config = engine::Config::from_server_command(&command, container.pod_ip);
    if let Some(memories) = &environment.node_memories {
        config.memory = memories.engine_memory(&container, &command).await;
    }
    if environment.load_times {
        let weight_bytes = model_weights::weight_bytes(&command);
        config.load_time = model_weights::load_time(weight_bytes);
        config.wake_time = model_weights::wake_time(weight_bytes, command.tensor_parallel_size);
    }
    let address = SocketAddr::new(config.address, config.port);
    container.log.write_line(&format!(
        "simulated engine for image {}: serving {} on {address}",
        container.image,
        config.default_model_name()
    ));
    match engine::run(config, environment.request_memory, shutdown).await {
        Ok(()) => exited(0),
        Err(error) if error.kind() == io::ErrorKind::OutOfMemory => failed(&container, &error.to_string()),
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => failed(&container, &format!("PortInUse: {address}")),
        Err(error) => failed(&container, &format!("{address}: {error}")),
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use rstest::rstest;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpStream;

    use super::*;
    use crate::container_exit::EXIT_CODE_SIGTERM;
    use crate::container_fixture::container;

    #[rstest]
    #[case(&["false"], Some(1))]
    #[case(&["/bin/sh", "-c", "exit 3"], Some(3))]
    #[case(&["sh", "-c", "exit 3; vllm serve m"], None)]
    #[case(&["vllm", "serve", "m"], None)]
    fn finds_fixed_exit_code(#[case] args: &[&str], #[case] expected: Option<i32>) {
        assert_eq!(fixed_exit_code(&container(args)), expected);
    }

    #[rstest]
    #[case::probe("GET", "HTTP/1.1 200 OK")]
    #[case::request("POST", "HTTP/1.1 501 Not Implemented")]
    #[tokio::test]
    async fn stub_answers_only_probes(#[case] method: &str, #[case] expected: &str) {
        let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let shutdown = CancellationToken::new();
        let address: IpAddr = [127, 0, 0, 1].into();
        let task = tokio::spawn(run(
            ContainerConfig { pod_ip: address, ports: vec![port], ..container(&["nginx"]) },
            &EngineEnvironment::default(),
            shutdown.clone(),
        ));
        let mut stream = loop {
            match TcpStream::connect((address, port)).await {
                Ok(stream) => break stream,
                Err(_) => tokio::task::yield_now().await,
            }
        };
        let request = format!("{method} / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut response = String::new();
        stream.read_to_string(&mut response).await.unwrap();
        assert!(response.starts_with(expected), "{response}");
        shutdown.cancel();
        assert_eq!(task.await.unwrap().code, EXIT_CODE_SIGTERM);
    }
}
