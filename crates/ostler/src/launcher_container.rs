//! Launchers of dual pods, which run in this process with simulated engines as their instances.

use std::path::Path;
use std::sync::Arc;

use actuation::{EngineCommand, EngineRunner, GpuSource, LauncherDaemon};
use clap::{Args, Command, FromArgMatches};
use embedded::ports::{ContainerConfig, ContainerExit, ContainerPurpose};
use futures::future::{BoxFuture, FutureExt};
use tokio_util::sync::CancellationToken;

use crate::container_exit::{exited, failed};
use crate::launcher_args::LauncherArgs;
use crate::simulated_container::{self, EngineEnvironment};

/// Name of the subcommand of `ostler`.
const PROGRAM: &str = "launcher";

/// Runs the instances of a launcher as simulated engines.
struct SimulatedEngines {
    /// The container of the launcher.
    container: ContainerConfig,
    environment: EngineEnvironment,
}

impl EngineRunner for SimulatedEngines {
    fn run(&self, command: EngineCommand, shutdown: CancellationToken) -> BoxFuture<'static, i32> {
        let mut container = self.container.clone();
        (container.command, container.args) = (command.command_line, Vec::new());
        // The last one of several variables of the same name applies.
        container.env.extend(command.variables);
        simulated_container::run(container, &self.environment, shutdown).map(|exit| exit.code).boxed()
    }
}

/// Returns the flags of the launcher that the container runs, or of the container that copies its program: `ostler launcher`. `None`
/// if it runs another program.
pub(crate) fn launcher_flags(container: &ContainerConfig, is_own_image: bool) -> Option<Vec<String>> {
    if container.purpose == ContainerPurpose::ExecProbe {
        return None;
    }
    let words: Vec<&str> = container.command.iter().chain(&container.args).map(String::as_str).collect();
    let flags = match words.as_slice() {
        // Arguments of the entry point of the image, which is `ostler`.
        [PROGRAM, flags @ ..] if is_own_image && container.command.is_empty() => flags,
        [program, PROGRAM, flags @ ..] if Path::new(program).file_name().is_some_and(|file| file == "ostler") => flags,
        _ => return None,
    };
    Some(flags.iter().map(|flag| (*flag).to_owned()).collect())
}

/// Runs the launcher with these flags until `shutdown` is cancelled. `runs_programs` is whether engines of the container's image would
/// be programs of this host.
pub(crate) async fn run(
    container: ContainerConfig,
    flags: Vec<String>,
    runs_programs: bool,
    environment: EngineEnvironment,
    shutdown: CancellationToken,
) -> ContainerExit {
    let words = std::iter::once(PROGRAM.to_owned()).chain(flags);
    let matches = LauncherArgs::augment_args(Command::new(PROGRAM)).try_get_matches_from(words);
    let args = match matches.and_then(|matches| LauncherArgs::from_arg_matches(&matches)) {
        Ok(args) => args,
        Err(error) => return failed(&container, error.to_string().lines().next().unwrap_or_default()),
    };
    if args.install.is_some() {
        container.log.write_line("simulated: the launcher runs in the process of ostler up");
        return exited(0);
    }
    if runs_programs {
        return failed(&container, "launchers run simulated engines only: use mode direct on the node of this host");
    }
    let mut options = args.options();
    options.address.set_ip(container.pod_ip);
    options.instances.log_directory = std::env::temp_dir();
    if let (GpuSource::NvidiaSmi, Some(memories)) = (&options.instances.gpus, &environment.node_memories) {
        options.instances.gpus = GpuSource::Mock(memories.gpu_ids(&container.node).await);
    }
    let runner = SimulatedEngines { container: container.clone(), environment };
    let daemon = match LauncherDaemon::bind_with(options, Some(Arc::new(runner))).await {
        Ok(daemon) => daemon,
        Err(error) => return failed(&container, &error.to_string()),
    };
    container.log.write_line(&format!("launcher on {} with simulated engines", container.pod_ip));
    match daemon.run(shutdown).await {
        Ok(()) => exited(0),
        Err(error) => failed(&container, &error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;
    use crate::container_fixture::container;

    #[rstest]
    #[case::launcher(&["/ostler/ostler", "launcher", "--port=8001"], Some("--port=8001"))]
    #[case::other_subcommand(&["ostler", "requester"], None)]
    #[case::engine(&["vllm", "serve", "launcher"], None)]
    fn launchers_are_recognized(#[case] words: &[&str], #[case] expected: Option<&str>) {
        let flags = launcher_flags(&container(words), false);
        assert_eq!(flags.map(|flags| flags.join(" ")).as_deref(), expected);
    }

    #[test]
    fn container_that_copies_the_program_is_recognized() {
        let mut config = container(&[]);
        config.args = vec!["launcher".to_owned(), "--install=/ostler".to_owned()];
        assert_eq!(launcher_flags(&config, true), Some(vec!["--install=/ostler".to_owned()]));
        assert_eq!(launcher_flags(&config, false), None);
    }

    #[tokio::test]
    async fn container_that_copies_the_program_ends() {
        let flags = vec!["--install=/ostler".to_owned()];
        let exit = run(container(&[]), flags, false, EngineEnvironment::default(), CancellationToken::new()).await;
        assert_eq!(exit.code, 0);
    }
}
