//! How `ostler up` runs containers: as processes on the node that is this machine, where something here stands for the
//! image, and otherwise every engine command line becomes a simulated engine inside this process.

use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use embedded::node::process::ProcessRunner;
use embedded::ports::{Container, Exit, Purpose, Runner};
use engine::launch_line::{self, LaunchLine};
use futures::future::{BoxFuture, FutureExt, ready};
use tokio_util::sync::CancellationToken;

use crate::gpus::{self, Gpus};
use crate::idle;
use crate::images::{Broken, Images, Program};

const KUBECONFIG: &str = "KUBECONFIG";

/// Exit code of a process that SIGTERM ended, as a shell reports it.
pub(crate) const TERMINATED: i32 = 143;

/// What runs where.
#[derive(Default)]
pub(crate) struct MachineRunner {
    /// Name of the node that is this machine, if it is one.
    pub node: Option<String>,
    pub gpus: Gpus,
    pub images: Images,
    /// Where this program's own image finds the cluster, on whichever node it runs.
    pub kubeconfig: Option<PathBuf>,
    pub processes: ProcessRunner,
}

impl Runner for MachineRunner {
    fn pull(&self, _node: &str, image: &str) -> Result<(), String> {
        self.images.unavailable(image).map_or(Ok(()), Err)
    }

    fn run(&self, container: Container, stop: CancellationToken) -> BoxFuture<'static, Exit> {
        if container.purpose != Purpose::Probe && self.images.broken(&container.image) == Some(Broken::Crash) {
            let message = format!("image {} ends at once, as --config says", container.image);
            return ready(failed(&container, &message)).boxed();
        }
        match self.program(&container.node, &container.image) {
            Some(program) => self.process(container, &program, stop),
            None => {
                if self.is_here(&container.node) && container.purpose != Purpose::Probe {
                    let image = &container.image;
                    let line = format!("no program of this machine stands for image {image}; name one with --config");
                    container.log.write_line(&line);
                }
                simulated(container, stop)
            }
        }
    }

    fn sees_files(&self, node: &str, image: &str) -> bool {
        self.program(node, image).is_some()
    }
}

impl MachineRunner {
    fn is_here(&self, node: &str) -> bool {
        self.node.as_deref() == Some(node)
    }

    /// This program is on every node: simulated ones have nothing that it would miss.
    fn program(&self, node: &str, image: &str) -> Option<Program> {
        self.images.own(image).or_else(|| self.images.find(image).filter(|_| self.is_here(node)))
    }

    fn process(
        &self,
        mut container: Container,
        program: &Program,
        stop: CancellationToken,
    ) -> BoxFuture<'static, Exit> {
        // A probe runs beside the container and has nothing to do with devices.
        let grant = match container.purpose {
            Purpose::Probe => None,
            _ => match self.gpus.take(requested(&container)) {
                Some(grant) => Some(grant),
                None => return ready(failed(&container, "the accelerators of this machine are not free yet")).boxed(),
            },
        };
        if let Some(grant) = &grant {
            container.env.retain(|(name, _)| name != gpus::VISIBLE);
            container.env.push((gpus::VISIBLE.to_owned(), grant.uuids.join(",")));
        }
        if container.command.is_empty() {
            container.command.clone_from(&program.entrypoint);
        }
        find_beside(&mut container, program);
        if self.images.own(&container.image).is_some() {
            connect(&mut container, self.kubeconfig.as_deref());
        }
        if container.purpose == Purpose::Serve {
            listen_on_own_address(&mut container);
            let words: Vec<&str> = container.command.iter().chain(&container.args).map(String::as_str).collect();
            let line = format!("image {} is a process of this machine: {}", container.image, words.join(" "));
            container.log.write_line(&line);
        }
        let run = self.processes.run(container, stop);
        async move {
            let exit = run.await;
            drop(grant);
            exit
        }
        .boxed()
    }
}

/// Programs beside the entry point come first on PATH.
fn find_beside(container: &mut Container, program: &Program) {
    let Some(folder) = program.folder() else { return };
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::iter::once(folder.to_path_buf()).chain(std::env::split_paths(&path));
    // A container's own PATH is of its image's folders; those are not here.
    container.env.retain(|(name, _)| name != "PATH");
    let path = std::env::join_paths(folders).unwrap_or(path);
    container.env.push(("PATH".to_owned(), path.to_string_lossy().into_owned()));
}

/// There is no account in a file here; what the user named counts more.
fn connect(container: &mut Container, kubeconfig: Option<&Path>) {
    let stated = container.env.iter().any(|(name, _)| name == KUBECONFIG);
    if let Some(path) = kubeconfig.filter(|_| !stated) {
        container.env.push((KUBECONFIG.to_owned(), path.to_string_lossy().into_owned()));
    }
}

/// How many accelerators the container asks for.
fn requested(container: &Container) -> usize {
    let amounts = ["limits", "requests"].map(|kind| &container.resources[kind][gpus::RESOURCE]);
    let count = |amount: &serde_json::Value| match amount {
        serde_json::Value::String(text) => text.parse().ok(),
        other => other.as_u64().and_then(|count| usize::try_from(count).ok()),
    };
    amounts.into_iter().find_map(count).unwrap_or(0)
}

/// Every Pod has an address of its own, and they share one machine: an engine that listened on all addresses would take
/// the port of all Pods.
fn listen_on_own_address(container: &mut Container) {
    if launch_line::parse(&container.command, &container.args, &container.env).is_none() {
        return;
    }
    let address = container.address.to_string();
    let mut words = container.command.iter_mut().chain(&mut container.args);
    while let Some(word) = words.next() {
        if word == "--host" {
            if let Some(value) = words.next() {
                *value = address;
            }
            return;
        }
        if word.starts_with("--host=") {
            *word = format!("--host={address}");
            return;
        }
        // Inside a script.
        for all in ["--host 0.0.0.0", "--host=0.0.0.0"] {
            if word.contains(all) {
                *word = word.replace(all, &format!("--host {address}"));
                return;
            }
        }
    }
    container.args.extend(["--host".to_owned(), address]);
}

/// Runs engines as simulated ones; any other container answers its probes and nothing else.
fn simulated(container: Container, stop: CancellationToken) -> BoxFuture<'static, Exit> {
    let line = launch_line::parse(&container.command, &container.args, &container.env);
    if let (Purpose::Serve | Purpose::Initialise, Some(code)) = (container.purpose, stated_end(&container)) {
        container
            .log
            .write_line(&format!("image {}: simulated, ends with code {code} as its command says", container.image));
        return ready(Exit { code, message: String::new() }).boxed();
    }
    match (container.purpose, line) {
        (Purpose::Serve, Some(line)) => serve(container, line, stop).boxed(),
        (Purpose::Serve, None) => idle::run(container, stop).boxed(),
        (Purpose::Initialise, _) => {
            container.log.write_line(&format!("image {}: simulated, nothing to prepare", container.image));
            ready(Exit { code: 0, message: String::new() }).boxed()
        }
        // A simulated engine that runs is well; one that does not has no probe asked.
        (Purpose::Probe, _) => ready(Exit { code: 0, message: String::new() }).boxed(),
    }
}

/// A command that does nothing but end: `true`, `false`, or `sh -c 'exit N'`.
fn stated_end(container: &Container) -> Option<i32> {
    let words: Vec<&str> = container.command.iter().chain(&container.args).map(String::as_str).collect();
    match *words.as_slice() {
        ["true" | "/bin/true"] => Some(0),
        ["false" | "/bin/false"] => Some(1),
        [shell, "-c", script] if decide::merge::args::is_shell(shell) => {
            script.trim().strip_prefix("exit")?.trim().parse().ok()
        }
        _ => None,
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

fn failed(container: &Container, message: &str) -> Exit {
    container.log.write_line(message);
    Exit { code: 1, message: message.to_owned() }
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

    fn container(words: &[&str]) -> Container {
        Container {
            node: "here".to_owned(),
            namespace: "n".to_owned(),
            pod: "p".to_owned(),
            pod_uid: "u".to_owned(),
            name: "c".to_owned(),
            image: "vllm/vllm-openai".to_owned(),
            purpose: Purpose::Serve,
            command: words.iter().map(|word| (*word).to_owned()).collect(),
            args: Vec::new(),
            env: Vec::new(),
            address: [127, 20, 0, 1].into(),
            ports: Vec::new(),
            working_dir: None,
            labels: BTreeMap::new(),
            resources: serde_json::Value::Null,
            log: LogSink::default(),
            folder: None,
            mounts: Vec::new(),
        }
    }

    #[rstest]
    #[case::stated(&["vllm", "serve", "m", "--host", "0.0.0.0"], "vllm serve m --host 127.20.0.1")]
    #[case::one_word(&["vllm", "serve", "m", "--host=::", "--port=1"], "vllm serve m --host=127.20.0.1 --port=1")]
    #[case::not_stated(&["vllm", "serve", "m"], "vllm serve m --host 127.20.0.1")]
    #[case::a_script(&["sh", "-c", "vllm serve m --host 0.0.0.0 --port 1"], "sh -c vllm serve m --host 127.20.0.1 --port 1")]
    #[case::no_engine(&["sleep", "9"], "sleep 9")]
    fn an_engine_listens_on_the_address_of_its_pod(#[case] words: &[&str], #[case] expect: &str) {
        let mut container = container(words);
        listen_on_own_address(&mut container);
        let words: Vec<String> = container.command.into_iter().chain(container.args).collect();
        assert_eq!(words.join(" "), expect);
    }

    #[rstest]
    #[case(&["false"], Some(1))]
    #[case(&["/bin/sh", "-c", "exit 3"], Some(3))]
    #[case(&["sh", "-c", "exit 3; vllm serve m"], None)]
    #[case(&["vllm", "serve", "m"], None)]
    fn a_command_that_only_ends(#[case] words: &[&str], #[case] expect: Option<i32>) {
        assert_eq!(stated_end(&container(words)), expect);
    }

    #[rstest]
    #[case::a_probe("GET", "HTTP/1.1 200 OK")]
    #[case::a_question("POST", "HTTP/1.1 501 Not Implemented")]
    #[tokio::test]
    async fn what_is_no_engine_answers_its_probes_only(#[case] method: &str, #[case] expect: &str) {
        let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let stop = CancellationToken::new();
        let address: IpAddr = [127, 0, 0, 1].into();
        let running =
            tokio::spawn(simulated(Container { address, ports: vec![port], ..container(&["nginx"]) }, stop.clone()));
        let mut stream = loop {
            match TcpStream::connect((address, port)).await {
                Ok(stream) => break stream,
                Err(_) => tokio::task::yield_now().await,
            }
        };
        let request = format!("{method} / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        assert!(answer.starts_with(expect), "{answer}");
        stop.cancel();
        assert_eq!(running.await.unwrap().code, TERMINATED);
    }
}
