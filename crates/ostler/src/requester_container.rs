//! Requesters of dual pods, which run in this process: all Pods share this host, so each listens on the IP of its Pod only.

use std::path::Path;

use actuation::RequesterDaemon;
use clap::{Args, Command, FromArgMatches};
use embedded::ports::{ContainerConfig, ContainerExit, ContainerPurpose};
use tokio_util::sync::CancellationToken;

use crate::container_exit::{exited, failed};
use crate::gpus::GPU_RESOURCE;
use crate::node_memories::NodeMemories;
use crate::requester_args::RequesterArgs;

/// Name of the program, and of the subcommand of `ostler`.
const PROGRAM: &str = "requester";
/// Variables of the deployed requester, the flags for which they stand, and the defaults of these.
const PORT_VARIABLES: [(&str, &str, &str); 2] =
    [("PROBES_PORT", "--probes-port", "8080"), ("SPI_PORT", "--spi-port", "8081")];

/// Returns the flags of the requester that the container runs: `ostler requester`, or a program named `requester`. `None` if it
/// runs another program.
pub(crate) fn requester_flags(container: &ContainerConfig, is_own_image: bool) -> Option<Vec<String>> {
    if container.purpose != ContainerPurpose::Service {
        return None;
    }
    let words: Vec<&str> = container.command.iter().chain(&container.args).map(String::as_str).collect();
    let is_program = |word: &str, name: &str| Path::new(word).file_name().is_some_and(|file| file == name);
    let flags = match words.as_slice() {
        // Arguments of the entry point of the image, which is `ostler`.
        [PROGRAM, flags @ ..] if is_own_image && container.command.is_empty() => flags,
        _ if container.command.is_empty() => return None,
        [program, flags @ ..] if is_program(program, PROGRAM) => flags,
        [program, PROGRAM, flags @ ..] if is_program(program, "ostler") => flags,
        _ => return None,
    };
    Some(flags.iter().map(|flag| (*flag).to_owned()).collect())
}

/// Runs the requester with these flags until it is released after `shutdown`.
pub(crate) async fn run(
    container: ContainerConfig,
    flags: Vec<String>,
    memories: Option<&NodeMemories>,
    shutdown: CancellationToken,
) -> ContainerExit {
    let args = match parse(&container, flags) {
        Ok(args) => args,
        Err(error) => return failed(&container, error.to_string().lines().next().unwrap_or_default()),
    };
    if args.list {
        let gpus = match memories {
            Some(memories) => memories.gpu_ids(&container.node).await,
            None => Vec::new(),
        };
        gpus.iter().enumerate().for_each(|(index, uuid)| container.log.write_line(&format!("{index}, {uuid}")));
        return exited(0);
    }
    let mut options = args.options();
    options.address = container.pod_ip;
    let assigned = || container.devices.get(GPU_RESOURCE).cloned().unwrap_or_default();
    options.mock_accelerators.get_or_insert_with(assigned);
    let accelerators = options.mock_accelerators.iter().flatten().cloned().collect::<Vec<_>>().join(",");
    let daemon = match RequesterDaemon::bind(options).await {
        Ok(daemon) => daemon,
        Err(error) => return failed(&container, &error.to_string()),
    };
    container.log.write_line(&format!("requester on {} with the accelerators {accelerators}", container.pod_ip));
    match daemon.run(shutdown).await {
        Ok(()) => exited(0),
        Err(error) => failed(&container, &error.to_string()),
    }
}

/// Parses the flags. The variables of the container apply instead of those of this process.
fn parse(container: &ContainerConfig, flags: Vec<String>) -> Result<RequesterArgs, clap::Error> {
    let ports = PORT_VARIABLES.iter().map(|(variable, flag, default)| {
        let value = container.env.iter().rev().find(|(name, _)| name == variable).map(|(_, value)| value.as_str());
        format!("{flag}={}", value.unwrap_or(default))
    });
    let words = std::iter::once(PROGRAM.to_owned()).chain(ports).chain(flags);
    let command = RequesterArgs::augment_args(Command::new(PROGRAM)).args_override_self(true);
    RequesterArgs::from_arg_matches(&command.try_get_matches_from(words)?)
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;
    use crate::container_fixture::container;

    #[rstest]
    #[case::specification(&["/app/requester", "--spi-port=8082"], false, Some("--spi-port=8082"))]
    #[case::subcommand(&["/usr/bin/ostler", "requester", "--hold=false"], false, Some("--hold=false"))]
    #[case::other_subcommand(&["ostler", "picker"], true, None)]
    #[case::engine(&["vllm", "serve", "requester"], false, None)]
    fn requesters_are_recognized(#[case] words: &[&str], #[case] is_own_image: bool, #[case] expected: Option<&str>) {
        let flags = requester_flags(&container(words), is_own_image);
        assert_eq!(flags.map(|flags| flags.join(" ")).as_deref(), expected);
    }

    #[test]
    fn entry_point_of_the_own_image_is_implied() {
        let mut config = container(&[]);
        config.args = vec!["requester".to_owned(), "--list".to_owned()];
        assert_eq!(requester_flags(&config, true), Some(vec!["--list".to_owned()]));
        assert_eq!(requester_flags(&config, false), None);
    }

    #[test]
    fn variables_are_those_of_the_container() {
        let mut config = container(&["requester"]);
        config.env = vec![("SPI_PORT".to_owned(), "9".to_owned())];
        let args = parse(&config, vec!["--probes-port=7".to_owned()]).unwrap().options();
        assert_eq!((args.probes_port, args.spi_port), (7, 9));
    }
}
