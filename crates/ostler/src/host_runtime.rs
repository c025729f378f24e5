//! The container runtime of `ostler up`. On the node of this host, images that map to a program run as processes. All other
//! engines are simulated in this process, according to their command line.

use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use embedded::ProcessRuntime;
use embedded::ports::{ContainerConfig, ContainerExit, ContainerPurpose, ContainerRuntime};
use engine::ServerCommand;
use futures::future::{BoxFuture, FutureExt, ready};
use tokio_util::sync::CancellationToken;

use crate::gpus::{self, GpuInventory};
use crate::images::{ImageFailure, ImageOverride, Images};
use crate::stub_container;

/// Environment variable with the path of the kubeconfig.
const KUBECONFIG_ENV: &str = "KUBECONFIG";

/// Runs the containers of all nodes.
#[derive(Default)]
pub(crate) struct HostRuntime {
    /// Name of the node of this host, if there is one.
    pub node: Option<String>,
    pub gpus: GpuInventory,
    pub images: Images,
    /// Kubeconfig for containers of the image `ostler`, on any node.
    pub kubeconfig: Option<PathBuf>,
    pub processes: ProcessRuntime,
}

impl ContainerRuntime for HostRuntime {
    fn pull_image(&self, _node: &str, image: &str) -> Result<(), String> {
        self.images.pull_error(image).map_or(Ok(()), Err)
    }

    fn run(&self, container: ContainerConfig, shutdown: CancellationToken) -> BoxFuture<'static, ContainerExit> {
        if container.purpose != ContainerPurpose::ExecProbe
            && self.images.failure(&container.image) == Some(ImageFailure::Crash)
        {
            let message = format!("image {} exits immediately, as configured in --config", container.image);
            return ready(failed(&container, &message)).boxed();
        }
        match self.image_override(&container.node, &container.image) {
            Some(program) => self.run_process(container, &program, shutdown),
            None => {
                if self.is_host_node(&container.node) && container.purpose != ContainerPurpose::ExecProbe {
                    let image = &container.image;
                    let message = format!("no program on this host for image {image}; configure one with --config");
                    container.log.write_line(&message);
                }
                run_simulated(container, shutdown)
            }
        }
    }

    fn uses_host_filesystem(&self, node: &str, image: &str) -> bool {
        self.image_override(node, image).is_some()
    }
}

impl HostRuntime {
    fn is_host_node(&self, node: &str) -> bool {
        self.node.as_deref() == Some(node)
    }

    /// Returns the program that runs for `image` on `node`. The image `ostler` runs as a process on all nodes, since it
    /// depends on nothing that simulated nodes lack.
    fn image_override(&self, node: &str, image: &str) -> Option<ImageOverride> {
        self.images.own_override(image).or_else(|| self.images.resolve(image).filter(|_| self.is_host_node(node)))
    }

    /// Runs a container as a process of this host.
    fn run_process(
        &self,
        mut container: ContainerConfig,
        program: &ImageOverride,
        shutdown: CancellationToken,
    ) -> BoxFuture<'static, ContainerExit> {
        // Exec probes run in addition to the container and need no GPUs.
        let allocation = match container.purpose {
            ContainerPurpose::ExecProbe => None,
            _ => match self.gpus.allocate(requested_gpus(&container)) {
                Some(allocation) => Some(allocation),
                None => {
                    return ready(failed(&container, "the GPUs of this host are still in use by another container"))
                        .boxed();
                }
            },
        };
        if let Some(allocation) = &allocation {
            container.env.retain(|(name, _)| name != gpus::VISIBLE_DEVICES_ENV);
            container.env.push((gpus::VISIBLE_DEVICES_ENV.to_owned(), allocation.uuids.join(",")));
        }
        if container.command.is_empty() {
            container.command.clone_from(&program.entrypoint);
        }
        prepend_path(&mut container, program);
        if self.images.own_override(&container.image).is_some() {
            set_kubeconfig(&mut container, self.kubeconfig.as_deref());
        }
        if container.purpose == ContainerPurpose::Service {
            listen_on_pod_ip(&mut container);
            let args: Vec<&str> = container.command.iter().chain(&container.args).map(String::as_str).collect();
            let message = format!("image {} runs as a process of this host: {}", container.image, args.join(" "));
            container.log.write_line(&message);
        }
        let process = self.processes.run(container, shutdown);
        async move {
            let exit = process.await;
            drop(allocation);
            exit
        }
        .boxed()
    }
}

/// Sets PATH to the directory of the entry point, followed by the PATH of this process.
fn prepend_path(container: &mut ContainerConfig, program: &ImageOverride) {
    let Some(directory) = program.entrypoint_directory() else { return };
    let path = std::env::var_os("PATH").unwrap_or_default();
    let directories = std::iter::once(directory.to_path_buf()).chain(std::env::split_paths(&path));
    // A PATH of the container refers to directories of its image, which do not exist here.
    container.env.retain(|(name, _)| name != "PATH");
    let path = std::env::join_paths(directories).unwrap_or(path);
    container.env.push(("PATH".to_owned(), path.to_string_lossy().into_owned()));
}

/// Sets `KUBECONFIG` unless the container sets it: containers have no ServiceAccount token files here.
fn set_kubeconfig(container: &mut ContainerConfig, kubeconfig: Option<&Path>) {
    let is_set = container.env.iter().any(|(name, _)| name == KUBECONFIG_ENV);
    if let Some(path) = kubeconfig.filter(|_| !is_set) {
        container.env.push((KUBECONFIG_ENV.to_owned(), path.to_string_lossy().into_owned()));
    }
}

/// Returns the number of GPUs that the container requests.
fn requested_gpus(container: &ContainerConfig) -> usize {
    let quantities = ["limits", "requests"].map(|kind| &container.resources[kind][gpus::GPU_RESOURCE]);
    let parse = |quantity: &serde_json::Value| match quantity {
        serde_json::Value::String(text) => text.parse().ok(),
        quantity => quantity.as_u64().and_then(|count| usize::try_from(count).ok()),
    };
    quantities.into_iter().find_map(parse).unwrap_or(0)
}

/// Makes an engine listen on the IP of its Pod. All Pods share this host, so an engine listening on all addresses would
/// occupy the port of every Pod.
fn listen_on_pod_ip(container: &mut ContainerConfig) {
    if ServerCommand::parse(&container.command, &container.args, &container.env).is_none() {
        return;
    }
    let address = container.pod_ip.to_string();
    let mut args = container.command.iter_mut().chain(&mut container.args);
    while let Some(arg) = args.next() {
        if arg == "--host" {
            if let Some(value) = args.next() {
                *value = address;
            }
            return;
        }
        if arg.starts_with("--host=") {
            *arg = format!("--host={address}");
            return;
        }
        // If the command is a shell script, the flag is part of a longer argument.
        for wildcard in ["--host 0.0.0.0", "--host=0.0.0.0"] {
            if arg.contains(wildcard) {
                *arg = arg.replace(wildcard, &format!("--host {address}"));
                return;
            }
        }
    }
    container.args.extend(["--host".to_owned(), address]);
}

/// Runs a simulated engine, or a stub for containers that are not a known engine.
fn run_simulated(container: ContainerConfig, shutdown: CancellationToken) -> BoxFuture<'static, ContainerExit> {
    let command = ServerCommand::parse(&container.command, &container.args, &container.env);
    if let (ContainerPurpose::Service | ContainerPurpose::Init, Some(code)) =
        (container.purpose, fixed_exit_code(&container))
    {
        container
            .log
            .write_line(&format!("image {}: simulated, exits with code {code} like its command", container.image));
        return ready(ContainerExit { code, message: String::new() }).boxed();
    }
    match (container.purpose, command) {
        (ContainerPurpose::Service, Some(command)) => serve_engine(container, command, shutdown).boxed(),
        (ContainerPurpose::Service, None) => stub_container::run(container, shutdown).boxed(),
        (ContainerPurpose::Init, _) => {
            container.log.write_line(&format!("image {}: simulated init container, completed", container.image));
            ready(ContainerExit { code: 0, message: String::new() }).boxed()
        }
        // Probes run only while the engine runs, and a running simulated engine is healthy.
        (ContainerPurpose::ExecProbe, _) => ready(ContainerExit { code: 0, message: String::new() }).boxed(),
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
    shutdown: CancellationToken,
) -> ContainerExit {
    let config = engine::Config::from_server_command(&command, container.pod_ip);
    let address = SocketAddr::new(config.address, config.port);
    container.log.write_line(&format!(
        "simulated engine for image {}: serving {} on {address}",
        container.image,
        config.default_model_name()
    ));
    match engine::run(config, shutdown).await {
        Ok(()) => ContainerExit { code: 0, message: String::new() },
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => failed(&container, &format!("PortInUse: {address}")),
        Err(error) => failed(&container, &format!("{address}: {error}")),
    }
}

fn failed(container: &ContainerConfig, message: &str) -> ContainerExit {
    container.log.write_line(message);
    ContainerExit { code: 1, message: message.to_owned() }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use embedded::ports::LogSink;
    use rstest::rstest;
    use std::net::IpAddr;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpStream;

    use super::*;

    fn container(args: &[&str]) -> ContainerConfig {
        ContainerConfig {
            node: "host".to_owned(),
            namespace: "n".to_owned(),
            pod: "p".to_owned(),
            pod_uid: "u".to_owned(),
            name: "c".to_owned(),
            image: "vllm/vllm-openai".to_owned(),
            purpose: ContainerPurpose::Service,
            command: args.iter().map(|arg| (*arg).to_owned()).collect(),
            args: Vec::new(),
            env: Vec::new(),
            pod_ip: [127, 20, 0, 1].into(),
            ports: Vec::new(),
            working_dir: None,
            labels: BTreeMap::new(),
            resources: serde_json::Value::Null,
            log: LogSink::default(),
            default_working_dir: None,
            mounts: Vec::new(),
        }
    }

    #[rstest]
    #[case::separate_value(&["vllm", "serve", "m", "--host", "0.0.0.0"], "vllm serve m --host 127.20.0.1")]
    #[case::joined_value(&["vllm", "serve", "m", "--host=::", "--port=1"], "vllm serve m --host=127.20.0.1 --port=1")]
    #[case::absent(&["vllm", "serve", "m"], "vllm serve m --host 127.20.0.1")]
    #[case::script(&["sh", "-c", "vllm serve m --host 0.0.0.0 --port 1"], "sh -c vllm serve m --host 127.20.0.1 --port 1")]
    #[case::other_program(&["sleep", "9"], "sleep 9")]
    fn engine_listens_on_pod_ip(#[case] args: &[&str], #[case] expected: &str) {
        let mut container = container(args);
        listen_on_pod_ip(&mut container);
        let args: Vec<String> = container.command.into_iter().chain(container.args).collect();
        assert_eq!(args.join(" "), expected);
    }

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
        let task = tokio::spawn(run_simulated(
            ContainerConfig { pod_ip: address, ports: vec![port], ..container(&["nginx"]) },
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
        assert_eq!(task.await.unwrap().code, stub_container::EXIT_CODE_SIGTERM);
    }
}
