//! Container runtime that starts containers as processes on the host.

use std::path::PathBuf;
use std::process::{ExitStatus, Stdio};

use futures::future::BoxFuture;
use rustix::process::{Pid, Signal};
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, BufReader};
use tokio::net::unix::pipe;
use tokio::process::{Child, Command};
use tokio_util::sync::CancellationToken;

use crate::logs::LogSink;
use crate::private_directory::create_private_dir;
use crate::process_tracker::ProcessTracker;
use crate::runtime::{ContainerConfig, ContainerExit, ContainerRuntime};
use crate::volumes::paths;

/// Runs `command` and `args` of a container as a process on the host, in its own process group. Images are ignored.
/// Mount paths are replaced with the host paths of the volumes. `stop` sends SIGTERM to the group; when the main
/// process exits, or the future is dropped, the rest of the group gets SIGKILL. The process gets the environment
/// variables of the container; `PATH` and `HOME` default to the values of this process.
#[derive(Debug, Clone, Default)]
pub struct ProcessRuntime {
    /// Records the started processes, so that the next start can kill those that survived a crash.
    pub tracker: ProcessTracker,
}

/// Exit code of a shell for a command that is not found.
const COMMAND_NOT_FOUND: i32 = 127;

/// A process group. Dropping it kills the processes.
struct ProcessGroup(Option<Pid>);

// === impl ProcessRuntime ===

impl ContainerRuntime for ProcessRuntime {
    fn run(&self, container: ContainerConfig, stop: CancellationToken) -> BoxFuture<'static, ContainerExit> {
        Box::pin(run(container, stop, self.tracker.clone()))
    }

    fn uses_host_filesystem(&self, _node: &str, _image: &str) -> bool {
        true
    }
}

async fn run(container: ContainerConfig, stop: CancellationToken, tracker: ProcessTracker) -> ContainerExit {
    let rewrite = |text: &String| paths::rewrite_mount_paths(text, &container.mounts);
    let mut command_line = container.command.iter().chain(&container.args).map(rewrite);
    let Some(program) = command_line.next() else {
        let message = format!("image {} has no default command on this node; set `command`", container.image);
        return ContainerExit { code: COMMAND_NOT_FOUND, message };
    };
    let mut command = Command::new(&program);
    command.args(command_line).env_clear();
    command.envs(["PATH", "HOME"].into_iter().filter_map(|name| Some((name, std::env::var_os(name)?))));
    command.envs(container.env.iter().map(|(name, value)| (name, rewrite(value))));
    command.envs(tracker.variables());
    match working_dir(&container) {
        Ok(dir) => dir.map(|dir| command.current_dir(dir)),
        Err(message) => return ContainerExit { code: COMMAND_NOT_FOUND, message },
    };
    command.stdin(Stdio::null()).process_group(0).kill_on_drop(true);
    let (mut child, output) = match spawn(command) {
        Ok(started) => started,
        Err(error) => {
            return ContainerExit { code: COMMAND_NOT_FOUND, message: format!("failed to start {program}: {error}") };
        }
    };
    let group = ProcessGroup::new(&child);
    let entry = tracker.record(group.0.map(Pid::as_raw_pid));
    let copy_task = tokio::spawn(copy_lines(output, container.log.clone()));
    let status = wait(&mut child, &group, &stop).await;
    drop((group, entry));
    // The task ends, because the pipe closes when the process group is killed. If it failed, only output is lost.
    let _ = copy_task.await;
    container_exit(status)
}

/// Spawns the process with one pipe for standard output and standard error, so that the order of the output is
/// preserved.
fn spawn(mut command: Command) -> std::io::Result<(Child, pipe::Receiver)> {
    let (output, writer) = std::io::pipe()?;
    command.stdout(writer.try_clone()?).stderr(writer);
    let child = command.spawn()?;
    Ok((child, pipe::Receiver::from_owned_fd(output.into())?))
}

/// Returns the working directory: `workingDir`, or else the default directory, which is created if missing.
fn working_dir(container: &ContainerConfig) -> Result<Option<PathBuf>, String> {
    if let Some(declared) = &container.working_dir {
        let dir = PathBuf::from(paths::rewrite_mount_paths(declared, &container.mounts));
        return match dir.is_dir() {
            true => Ok(Some(dir)),
            false => Err(format!("workingDir {declared} is not a directory of the host")),
        };
    }
    let result = container.default_working_dir.as_deref().map(create_private_dir).transpose();
    result.map_err(|error| format!("failed to create the directory of the container: {error}"))?;
    Ok(container.default_working_dir.clone())
}

/// Waits for the process to exit. Sends SIGTERM when `stop` is cancelled.
async fn wait(child: &mut Child, group: &ProcessGroup, stop: &CancellationToken) -> std::io::Result<ExitStatus> {
    tokio::select! {
        status = child.wait() => return status,
        () = stop.cancelled() => group.signal(Signal::TERM),
    }
    child.wait().await
}

/// Converts the exit status of the process to that of the container.
fn container_exit(status: std::io::Result<ExitStatus>) -> ContainerExit {
    use std::os::unix::process::ExitStatusExt;
    match status {
        Ok(status) => {
            let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal)).unwrap_or(1);
            ContainerExit { code, message: String::new() }
        }
        Err(error) => ContainerExit { code: 1, message: format!("failed to wait for the process: {error}") },
    }
}

/// Maximum number of bytes that are read for one line; longer lines are split.
const MAX_READ_BYTES: u64 = 256 << 10;

/// Copies lines to the log; invalid UTF-8 is replaced.
async fn copy_lines(output: impl AsyncRead + Unpin, log: LogSink) {
    let mut reader = BufReader::new(output);
    let mut line = Vec::new();
    while let Ok(1..) = (&mut reader).take(MAX_READ_BYTES).read_until(b'\n', &mut line).await {
        let text = line.strip_suffix(b"\n").unwrap_or(&line);
        log.write_line(&String::from_utf8_lossy(text));
        line.clear();
    }
}

// === impl ProcessGroup ===

impl ProcessGroup {
    fn new(child: &Child) -> Self {
        Self(child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw))
    }

    /// Sends a signal to the process group. An error means that the group has already exited.
    fn signal(&self, signal: Signal) {
        if let Some(pid) = self.0 {
            let _ = rustix::process::kill_process_group(pid, signal);
        }
    }
}

impl Drop for ProcessGroup {
    fn drop(&mut self) {
        self.signal(Signal::KILL);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::net::{IpAddr, Ipv4Addr};

    use super::*;
    use crate::runtime::{ContainerPurpose, Mount};

    fn shell_container(script: &str) -> ContainerConfig {
        ContainerConfig {
            node: "node".to_owned(),
            namespace: "n".to_owned(),
            pod: "p".to_owned(),
            pod_uid: "u".to_owned(),
            name: "c".to_owned(),
            image: "none".to_owned(),
            purpose: ContainerPurpose::Service,
            command: ["sh", "-c", script].map(str::to_owned).to_vec(),
            args: Vec::new(),
            env: vec![("GREETING".to_owned(), "hello".to_owned())],
            pod_ip: IpAddr::V4(Ipv4Addr::LOCALHOST),
            ports: Vec::new(),
            working_dir: None,
            labels: BTreeMap::new(),
            resources: serde_json::Value::Null,
            log: LogSink::default(),
            default_working_dir: None,
            mounts: Vec::new(),
        }
    }

    #[tokio::test]
    async fn reports_output_and_exit_code() {
        let container = shell_container("echo $GREETING; echo oops >&2; exit 3");
        let log = container.log.clone();
        let exit = ProcessRuntime::default().run(container, CancellationToken::new()).await;
        assert_eq!(exit.code, 3);
        assert_eq!(log.lines(None), ["hello\n", "oops\n"]);
    }

    #[tokio::test]
    async fn preserves_order_of_output_and_errors() {
        let script = "i=0; while [ $i -lt 50 ]; do echo $i; echo $((i + 1)) >&2; i=$((i + 2)); done";
        let container = shell_container(script);
        let log = container.log.clone();
        ProcessRuntime::default().run(container, CancellationToken::new()).await;
        let expected: Vec<String> = (0..50).map(|number| format!("{number}\n")).collect();
        assert_eq!(log.lines(None), expected.iter().map(String::as_bytes).collect::<Vec<_>>());
    }

    #[tokio::test]
    async fn stop_sends_sigterm() {
        let stop = CancellationToken::new();
        stop.cancel();
        // Without `exec`, the shell would wait for `sleep` before handling the signal.
        let exit = ProcessRuntime::default().run(shell_container("exec sleep 1000"), stop).await;
        assert_eq!(exit.code, 128 + 15);
    }

    #[tokio::test]
    async fn rewrites_mount_paths() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("level"), "high\n").unwrap();
        let mut container = shell_container("cat /etc/app/level; cat $FILE");
        container.env = vec![("FILE".to_owned(), "/etc/app/level".to_owned())];
        container.mounts = vec![Mount { container_path: "/etc/app".to_owned(), host_path: dir.path().to_owned() }];
        let log = container.log.clone();
        assert_eq!(ProcessRuntime::default().run(container, CancellationToken::new()).await.code, 0);
        assert_eq!(log.lines(None), ["high\n", "high\n"]);
    }

    #[tokio::test]
    async fn reports_missing_program_as_exit_code() {
        let mut container = shell_container("");
        container.command = vec!["/no/such/program".to_owned()];
        let exit = ProcessRuntime::default().run(container, CancellationToken::new()).await;
        assert_eq!(exit.code, COMMAND_NOT_FOUND);
        assert!(exit.message.contains("/no/such/program"), "{}", exit.message);
    }
}
