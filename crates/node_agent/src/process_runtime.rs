//! Container runtime that starts containers as processes on the host.

use std::path::PathBuf;
use std::process::{ExitStatus, Stdio};

use futures::future::BoxFuture;
use rustix::process::{Pid, Signal};
use tokio::net::unix::pipe;
use tokio::process::{Child, Command};
use tokio_util::sync::CancellationToken;

use crate::container_output::copy_output;
use crate::private_directory::create_private_dir;
use crate::process_tracker::{self, ProcessTracker};
use crate::runtime::{ContainerConfig, ContainerExit, ContainerPurpose, ContainerRuntime};
use crate::volumes::paths;

/// Runs `command` and `args` of a container as a process on the host, in its own process group. Images are ignored.
/// Mount paths are replaced with the host paths of the volumes. `stop` sends SIGTERM to the main process; when the main
/// process exits, or the future is dropped, the rest of the group gets SIGKILL, as do the descendants that have left the
/// group and the processes of exec probes. The process gets the environment variables of the container; `PATH` and
/// `HOME` default to the values of this process.
#[derive(Debug, Clone, Default)]
pub struct ProcessRuntime {
    /// Records the started processes, so that the next start can kill those that survived a crash.
    pub tracker: ProcessTracker,
}

/// Exit code of a shell for a command that is not found.
const COMMAND_NOT_FOUND: i32 = 127;

/// The processes of a container or of an exec probe. Dropping the value kills them.
struct ContainerProcesses {
    group: Option<Pid>,
    /// Marker of the container; `None` for an exec probe. What a probe leaves behind belongs to its container and ends with
    /// it.
    marker: Option<String>,
}

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
    let marker = tracker.container_marker(&container.pod_uid, &container.name, container.attempt);
    command.envs(tracker.variables(&marker));
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
    let marker = Some(marker).filter(|_| container.purpose != ContainerPurpose::ExecProbe);
    let processes = ContainerProcesses::new(&child, marker);
    let entry = tracker.record(processes.group.map(Pid::as_raw_pid));
    let ended = CancellationToken::new();
    // The task ends even if this future is dropped or a process that was not killed keeps the pipe open.
    let ended_guard = ended.clone().drop_guard();
    let copy_task = tokio::spawn(copy_output(output, container.log.clone(), ended));
    let status = wait(&mut child, &processes, &stop).await;
    processes.kill().await;
    drop((entry, ended_guard));
    // If the task failed, only output is lost.
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

/// Waits for the process to exit. Sends SIGTERM when `stop` is cancelled, to this process only, as the kubelet does: it ends its
/// children when their work is complete, for example a server the workers of its requests.
async fn wait(
    child: &mut Child,
    processes: &ContainerProcesses,
    stop: &CancellationToken,
) -> std::io::Result<ExitStatus> {
    tokio::select! {
        status = child.wait() => return status,
        () = stop.cancelled() => processes.terminate_main(),
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

// === impl ContainerProcesses ===

impl ContainerProcesses {
    fn new(child: &Child, marker: Option<String>) -> Self {
        Self { group: child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw), marker }
    }

    /// Sends SIGTERM to the main process, which has the id of the group. An error means that it has already exited.
    fn terminate_main(&self) {
        if let Some(pid) = self.group {
            let _ = rustix::process::kill_process(pid, Signal::TERM);
        }
    }

    /// Sends a signal to the process group. An error means that the group has already exited.
    fn signal_group(&self, signal: Signal) {
        if let Some(pid) = self.group {
            let _ = rustix::process::kill_process_group(pid, signal);
        }
    }

    /// Kills the processes and waits until they have ended.
    async fn kill(mut self) {
        self.signal_group(Signal::KILL);
        // Another process may get the id from now on.
        self.group = None;
        if let Some(marker) = self.marker.take() {
            // An error means that the runtime is shutting down.
            let _ = tokio::task::spawn_blocking(move || process_tracker::kill_container(&marker)).await;
        }
    }
}

impl Drop for ContainerProcesses {
    fn drop(&mut self) {
        self.signal_group(Signal::KILL);
        let Some(marker) = self.marker.take() else { return };
        let kill = move || process_tracker::kill_container(&marker);
        // Reading all processes of the host takes too long for an async worker.
        match tokio::runtime::Handle::try_current() {
            Ok(runtime) => drop(runtime.spawn_blocking(kill)),
            Err(_) => kill(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::net::{IpAddr, Ipv4Addr};

    use std::path::Path;
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::time::Duration;

    use super::*;
    use crate::logs::LogSink;
    use crate::proc;
    use crate::runtime::Mount;

    /// Generous, because the host may be busy.
    const TIMEOUT: Duration = Duration::from_secs(300);

    /// Returns a container of its own Pod.
    fn shell_container(script: &str) -> ContainerConfig {
        static PODS: AtomicU32 = AtomicU32::new(0);
        ContainerConfig {
            node: "node".to_owned(),
            namespace: "n".to_owned(),
            pod: "p".to_owned(),
            pod_uid: PODS.fetch_add(1, Ordering::Relaxed).to_string(),
            name: "c".to_owned(),
            attempt: 0,
            image: "none".to_owned(),
            purpose: ContainerPurpose::Service,
            command: ["sh", "-c", script].map(str::to_owned).to_vec(),
            args: Vec::new(),
            env: vec![("GREETING".to_owned(), "hello".to_owned())],
            pod_ip: IpAddr::V4(Ipv4Addr::LOCALHOST),
            ports: Vec::new(),
            working_dir: None,
            labels: BTreeMap::new(),
            devices: std::collections::BTreeMap::new(),
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

    /// Starts a process in its own session that keeps standard output open, and writes its id to the file `pid`.
    const START_DAEMON: &str =
        "$WRAPPER setsid sh -c 'echo $$ > pid.new; mv pid.new pid; exec sleep 1000' & while [ ! -e pid ]; do :; done";

    fn daemon_container(dir: &Path, script: &str) -> ContainerConfig {
        ContainerConfig { working_dir: Some(dir.to_string_lossy().into_owned()), ..shell_container(script) }
    }

    async fn run_to_end(container: ContainerConfig) -> ContainerExit {
        let exit = ProcessRuntime::default().run(container, CancellationToken::new());
        tokio::time::timeout(TIMEOUT, exit).await.expect("the container does not end")
    }

    async fn daemon_pid(dir: &Path) -> i32 {
        let read_pid = async {
            loop {
                if let Ok(pid) = std::fs::read_to_string(dir.join("pid")) {
                    return pid.trim().parse().unwrap();
                }
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(TIMEOUT, read_pid).await.expect("the process does not start")
    }

    async fn wait_until_ended(pid: i32) {
        let ended = async {
            while proc::read(pid).is_some() {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(TIMEOUT, ended).await.expect("the process does not end");
    }

    #[tokio::test]
    async fn container_ends_with_its_main_process() {
        let dir = tempfile::tempdir().unwrap();
        let container = daemon_container(dir.path(), &format!("{START_DAEMON}; echo last; exit 3"));
        let log = container.log.clone();
        assert_eq!(run_to_end(container).await.code, 3);
        assert_eq!(log.lines(None), ["last\n"]);
        assert_eq!(proc::read(daemon_pid(dir.path()).await), None, "the daemon is killed");
    }

    /// Without its environment, the process is not recognized as part of the container.
    #[tokio::test]
    async fn container_ends_although_its_pipe_stays_open() {
        let dir = tempfile::tempdir().unwrap();
        let mut container = daemon_container(dir.path(), &format!("{START_DAEMON}; echo last; exit 3"));
        container.env.push(("WRAPPER".to_owned(), "env -i".to_owned()));
        let log = container.log.clone();
        let exit = run_to_end(container).await;
        let daemon = Pid::from_raw(daemon_pid(dir.path()).await).unwrap();
        rustix::process::kill_process(daemon, Signal::KILL).unwrap();
        assert_eq!((exit.code, log.lines(None)), (3, vec!["last\n".into()]));
    }

    #[tokio::test]
    async fn dropped_container_leaves_no_process() {
        let dir = tempfile::tempdir().unwrap();
        let container = daemon_container(dir.path(), &format!("{START_DAEMON}; sleep 1000"));
        let task = tokio::spawn(run_to_end(container));
        let daemon = daemon_pid(dir.path()).await;
        task.abort();
        wait_until_ended(daemon).await;
    }

    /// A container whose future is dropped is killed in the background, while its next run may already have started.
    #[tokio::test]
    async fn end_of_a_run_does_not_affect_the_next_one() {
        let dir = tempfile::tempdir().unwrap();
        let first = daemon_container(dir.path(), &format!("{START_DAEMON}; exec sleep 1000"));
        let second = ContainerConfig {
            attempt: 1,
            command: ["sh", "-c", "while [ -e pid ]; do :; done; exit 7"].map(str::to_owned).to_vec(),
            ..first.clone()
        };
        let task = tokio::spawn(run_to_end(first));
        let daemon = daemon_pid(dir.path()).await;
        let next = tokio::spawn(run_to_end(second));
        task.abort();
        wait_until_ended(daemon).await;
        std::fs::remove_file(dir.path().join("pid")).unwrap();
        assert_eq!(next.await.unwrap().code, 7);
    }

    /// What an exec probe starts belongs to its container.
    #[tokio::test]
    async fn process_of_a_probe_ends_with_the_container() {
        let dir = tempfile::tempdir().unwrap();
        let stop = CancellationToken::new();
        let container = daemon_container(dir.path(), "exec sleep 1000");
        let probe = ContainerConfig {
            purpose: ContainerPurpose::ExecProbe,
            command: ["sh", "-c", START_DAEMON].map(str::to_owned).to_vec(),
            ..container.clone()
        };
        let task = tokio::spawn(ProcessRuntime::default().run(container, stop.clone()));
        assert_eq!(run_to_end(probe).await.code, 0, "the probe ends with its main process");
        let daemon = daemon_pid(dir.path()).await;
        assert!(proc::read(daemon).is_some(), "the probe is still part of the container");
        stop.cancel();
        task.await.unwrap();
        assert_eq!(proc::read(daemon), None);
    }

    #[tokio::test]
    async fn long_line_is_complete() {
        let container = shell_container("head -c 1000000 /dev/zero | tr '\\0' x; echo; echo last");
        let log = container.log.clone();
        assert_eq!(run_to_end(container).await.code, 0);
        assert_eq!(log.lines(None).iter().map(bytes::Bytes::len).collect::<Vec<_>>(), [1_000_001, 5]);
    }

    #[tokio::test]
    async fn stop_sends_sigterm() {
        let stop = CancellationToken::new();
        stop.cancel();
        // Without `exec`, the shell would wait for `sleep` before handling the signal.
        let exit = ProcessRuntime::default().run(shell_container("exec sleep 1000"), stop).await;
        assert_eq!(exit.code, 128 + 15);
    }

    /// A server completes the requests that its workers process.
    #[tokio::test]
    async fn children_do_not_receive_sigterm() {
        let stop = CancellationToken::new();
        let worker = "sh -c 'sleep 1; echo completed' & trap 'wait; exit 7' TERM; echo ready; wait; exit 1";
        let container = shell_container(worker);
        let log = container.log.clone();
        let task = tokio::spawn({
            let stop = stop.clone();
            async move { ProcessRuntime::default().run(container, stop).await }
        });
        while log.lines(None).is_empty() {
            tokio::time::sleep(std::time::Duration::from_millis(2)).await;
        }
        stop.cancel();
        assert_eq!(task.await.unwrap().code, 7);
        assert_eq!(log.lines(None), ["ready\n", "completed\n"]);
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
