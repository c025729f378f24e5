//! The container runtime of `ostler up`. On the node of this host, images that map to a program run as processes. All other
//! engines are simulated in this process, according to their command line. Requesters of dual pods and launchers run in this process, too.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use embedded::ProcessRuntime;
use embedded::ports::{ContainerConfig, ContainerExit, ContainerPurpose, ContainerRuntime};
use engine::ServerCommand;
use futures::future::{BoxFuture, FutureExt, ready};
use tokio_util::sync::CancellationToken;

use crate::container_exit::{exited, failed};
use crate::gpus::{GPU_RESOURCE, VISIBLE_DEVICES_ENV};
use crate::images::{ImageFailure, ImageOverride, Images};
use crate::launcher_container;
use crate::requester_container;
use crate::simulated_container::{self, EngineEnvironment};

/// Environment variable with the path of the kubeconfig.
const KUBECONFIG_ENV: &str = "KUBECONFIG";

/// Maximum number of images that are listed as simulated.
const MAX_LISTED_IMAGES: usize = 64;

/// Runs the containers of all nodes.
#[derive(Default)]
pub(crate) struct HostRuntime {
    /// Name of the node of this host, if there is one.
    pub node: Option<String>,
    pub images: Images,
    /// Images whose containers on the node of this host are simulated.
    pub simulated_images: SimulatedImages,
    /// Kubeconfig for containers of the image `ostler`, on any node.
    pub kubeconfig: Option<PathBuf>,
    pub processes: ProcessRuntime,
    pub engines: EngineEnvironment,
    /// Cancelled when `ostler up` ends: requesters do not wait for their controller then.
    pub end: CancellationToken,
}

/// Images that run on the node of this host, but have no program. Clones share the set.
#[derive(Clone, Default)]
pub(crate) struct SimulatedImages(Arc<Mutex<BTreeSet<String>>>);

// === impl SimulatedImages ===

impl SimulatedImages {
    /// Adds an image, unless there are [`MAX_LISTED_IMAGES`] already.
    fn add(&self, image: &str) {
        let mut images = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if images.len() < MAX_LISTED_IMAGES {
            images.insert(image.to_owned());
        }
    }

    /// Returns the images, sorted.
    pub(crate) fn list(&self) -> Vec<String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).iter().cloned().collect()
    }
}

// === impl HostRuntime ===

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
        let is_own_image = self.images.own_override(&container.image).is_some();
        if let Some(flags) = requester_container::requester_flags(&container, is_own_image) {
            let (memories, end) = (self.engines.node_memories.clone(), self.end.clone());
            return async move {
                tokio::select! {
                    exit = requester_container::run(container, flags, memories.as_deref(), shutdown) => exit,
                    () = end.cancelled() => exited(0),
                }
            }
            .boxed();
        }
        if let Some(flags) = launcher_container::launcher_flags(&container, is_own_image) {
            let runs_programs = self.image_override(&container.node, &container.image).is_some() && !is_own_image;
            let (engines, end) = (self.engines.clone(), self.end.clone());
            return async move {
                tokio::select! {
                    exit = launcher_container::run(container, flags, runs_programs, engines, shutdown) => exit,
                    () = end.cancelled() => exited(0),
                }
            }
            .boxed();
        }
        match self.image_override(&container.node, &container.image) {
            Some(program) => self.run_process(container, &program, shutdown),
            None => {
                if self.is_host_node(&container.node) && container.purpose != ContainerPurpose::ExecProbe {
                    let image = &container.image;
                    let message = format!("no program on this host for image {image}; configure one with --config");
                    container.log.write_line(&message);
                    self.simulated_images.add(image);
                }
                simulated_container::run(container, &self.engines, shutdown)
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
        set_visible_devices(&mut container);
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
        self.processes.run(container, shutdown)
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

/// Makes the GPUs of the container, and no others, visible to CUDA programs. A container without GPUs may set the variable
/// itself, as one that shares the GPUs of another Pod does.
fn set_visible_devices(container: &mut ContainerConfig) {
    let gpus = container.devices.get(GPU_RESOURCE).map(|ids| ids.join(","));
    let is_set = container.env.iter().any(|(name, _)| name == VISIBLE_DEVICES_ENV);
    if gpus.is_none() && is_set {
        return;
    }
    container.env.retain(|(name, _)| name != VISIBLE_DEVICES_ENV);
    container.env.push((VISIBLE_DEVICES_ENV.to_owned(), gpus.unwrap_or_default()));
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

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, SocketAddr};

    use engine::RequestMemory;
    use rstest::rstest;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpStream;

    use super::*;
    use crate::container_fixture::container;

    #[test]
    fn number_of_simulated_images_is_limited() {
        let images = SimulatedImages::default();
        (0..1000).for_each(|number| images.add(&format!("image:{number}")));
        assert_eq!(images.list().len(), MAX_LISTED_IMAGES);
    }

    /// Two engines that have no memory for requests reject them: they share the memory of the runtime.
    #[tokio::test]
    async fn simulated_engines_share_their_memory() {
        let engines = EngineEnvironment { request_memory: RequestMemory::new(0), ..EngineEnvironment::default() };
        let runtime = HostRuntime { engines, ..HostRuntime::default() };
        for ip in [[127, 20, 0, 1], [127, 20, 0, 2]] {
            let port = std::net::TcpListener::bind((IpAddr::from(ip), 0)).unwrap().local_addr().unwrap().port();
            let (address, shutdown) = (SocketAddr::from((ip, port)), CancellationToken::new());
            let container = container(&["vllm", "serve", "m", "--port", &port.to_string()]);
            let engine =
                tokio::spawn(runtime.run(ContainerConfig { pod_ip: ip.into(), ..container }, shutdown.clone()));
            let mut stream = loop {
                match TcpStream::connect(address).await {
                    Ok(stream) => break stream,
                    Err(_) => tokio::task::yield_now().await,
                }
            };
            let request =
                "POST /v1/completions HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: 2\r\n\r\n{}";
            stream.write_all(request.as_bytes()).await.unwrap();
            let mut response = String::new();
            stream.read_to_string(&mut response).await.unwrap();
            assert!(response.starts_with("HTTP/1.1 503"), "{response}");
            shutdown.cancel();
            engine.await.unwrap();
        }
    }

    #[rstest]
    #[case::own_gpus(&["GPU-a", "GPU-b"], Some("3"), "GPU-a,GPU-b")]
    #[case::gpus_of_another_pod(&[], Some("3"), "3")]
    #[case::no_gpus(&[], None, "")]
    fn visible_devices(#[case] gpus: &[&str], #[case] variable: Option<&str>, #[case] expected: &str) {
        let mut container = container(&["vllm"]);
        container.env.extend(variable.map(|value| (VISIBLE_DEVICES_ENV.to_owned(), value.to_owned())));
        if !gpus.is_empty() {
            let ids = gpus.iter().map(|id| (*id).to_owned()).collect();
            container.devices.insert(GPU_RESOURCE.to_owned(), ids);
        }
        set_visible_devices(&mut container);
        assert_eq!(container.env, [(VISIBLE_DEVICES_ENV.to_owned(), expected.to_owned())]);
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
}
