//! Containers as local processes.

use std::path::PathBuf;
use std::process::{ExitStatus, Stdio};

use futures::future::BoxFuture;
use rustix::process::{Pid, Signal};
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, BufReader};
use tokio::net::unix::pipe;
use tokio::process::{Child, Command};
use tokio_util::sync::CancellationToken;

use super::processes::Processes;
use super::volumes::{paths, private};
use crate::ports::{Container, Exit, LogSink, Runner};

/// Runs `command` and `args` of a container as a process of this machine, in a process group of its own; images are not
/// looked at. Mount paths are rewritten to where the volumes lie. `stop` sends SIGTERM to the group; when the main process
/// ends, or the future is dropped, SIGKILL goes to whatever is left of it. The environment is the container's, with `PATH` and `HOME` of this process beneath.
#[derive(Debug, Clone, Default)]
pub struct ProcessRunner {
    /// Where the next start finds what this one leaves behind.
    pub processes: Processes,
}

/// What a shell answers when there is no such command.
const NOT_FOUND: i32 = 127;

/// Kills the process group on drop.
struct Group(Option<Pid>);

impl Runner for ProcessRunner {
    fn run(&self, container: Container, stop: CancellationToken) -> BoxFuture<'static, Exit> {
        Box::pin(run(container, stop, self.processes.clone()))
    }

    fn sees_files(&self, _node: &str, _image: &str) -> bool {
        true
    }
}

async fn run(container: Container, stop: CancellationToken, processes: Processes) -> Exit {
    let here = |text: &String| paths::rewrite(text, &container.mounts);
    let mut words = container.command.iter().chain(&container.args).map(here);
    let Some(program) = words.next() else {
        let message = format!("image {} has no command here; set `command`", container.image);
        return Exit { code: NOT_FOUND, message };
    };
    let mut command = Command::new(&program);
    command.args(words).env_clear();
    command.envs(["PATH", "HOME"].into_iter().filter_map(|name| Some((name, std::env::var_os(name)?))));
    command.envs(container.env.iter().map(|(name, value)| (name, here(value))));
    command.envs(processes.variables());
    match folder(&container) {
        Ok(folder) => folder.map(|folder| command.current_dir(folder)),
        Err(message) => return Exit { code: NOT_FOUND, message },
    };
    command.stdin(Stdio::null()).process_group(0).kill_on_drop(true);
    let (mut child, output) = match start(command) {
        Ok(started) => started,
        Err(error) => return Exit { code: NOT_FOUND, message: format!("cannot start {program}: {error}") },
    };
    let group = Group::of(&child);
    let noted = processes.started(group.0.map(Pid::as_raw_pid));
    let copying = tokio::spawn(copy(output, container.log.clone()));
    let status = wait(&mut child, &group, &stop).await;
    drop((group, noted));
    // The pipe closes with the group; what fails to copy is lost output only.
    let _ = copying.await;
    exit(status)
}

/// Starts it with one pipe for all that it writes: of two nobody knows what was written last, which is often why it
/// ended.
fn start(mut command: Command) -> std::io::Result<(Child, pipe::Receiver)> {
    let (output, into) = std::io::pipe()?;
    command.stdout(into.try_clone()?).stderr(into);
    let child = command.spawn()?;
    Ok((child, pipe::Receiver::from_owned_fd(output.into())?))
}

/// Where the process works: `workingDir`, else a folder of its own, which is made.
fn folder(container: &Container) -> Result<Option<PathBuf>, String> {
    if let Some(stated) = &container.working_dir {
        let folder = PathBuf::from(paths::rewrite(stated, &container.mounts));
        return match folder.is_dir() {
            true => Ok(Some(folder)),
            false => Err(format!("workingDir {stated} is no folder of this machine")),
        };
    }
    let made = container.folder.as_deref().map(private).transpose();
    made.map_err(|error| format!("cannot make the container's folder: {error}"))?;
    Ok(container.folder.clone())
}

async fn wait(child: &mut Child, group: &Group, stop: &CancellationToken) -> std::io::Result<ExitStatus> {
    tokio::select! {
        status = child.wait() => return status,
        () = stop.cancelled() => group.signal(Signal::TERM),
    }
    child.wait().await
}

fn exit(status: std::io::Result<ExitStatus>) -> Exit {
    use std::os::unix::process::ExitStatusExt;
    match status {
        Ok(status) => {
            let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal)).unwrap_or(1);
            Exit { code, message: String::new() }
        }
        Err(error) => Exit { code: 1, message: format!("cannot wait for the process: {error}") },
    }
}

/// A line that is longer is logged in pieces.
const LONGEST_LINE: u64 = 256 << 10;

/// Copies lines as they come; bytes that are no UTF-8 are replaced.
async fn copy(from: impl AsyncRead + Unpin, to: LogSink) {
    let mut reader = BufReader::new(from);
    let mut line = Vec::new();
    while let Ok(1..) = (&mut reader).take(LONGEST_LINE).read_until(b'\n', &mut line).await {
        let text = line.strip_suffix(b"\n").unwrap_or(&line);
        to.write_line(&String::from_utf8_lossy(text));
        line.clear();
    }
}

// === impl Group ===

impl Group {
    fn of(child: &Child) -> Self {
        Self(child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw))
    }

    /// A group that is gone already needs no signal.
    fn signal(&self, signal: Signal) {
        if let Some(pid) = self.0 {
            let _ = rustix::process::kill_process_group(pid, signal);
        }
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.signal(Signal::KILL);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::net::{IpAddr, Ipv4Addr};

    use super::*;
    use crate::ports::{Mount, Purpose};

    fn shell(script: &str) -> Container {
        Container {
            node: "here".to_owned(),
            namespace: "n".to_owned(),
            pod: "p".to_owned(),
            pod_uid: "u".to_owned(),
            name: "c".to_owned(),
            image: "none".to_owned(),
            purpose: Purpose::Serve,
            command: ["sh", "-c", script].map(str::to_owned).to_vec(),
            args: Vec::new(),
            env: vec![("GREETING".to_owned(), "hello".to_owned())],
            address: IpAddr::V4(Ipv4Addr::LOCALHOST),
            ports: Vec::new(),
            working_dir: None,
            labels: BTreeMap::new(),
            resources: serde_json::Value::Null,
            log: LogSink::default(),
            folder: None,
            mounts: Vec::new(),
        }
    }

    #[tokio::test]
    async fn output_and_code_are_the_process_own() {
        let container = shell("echo $GREETING; echo oops >&2; exit 3");
        let log = container.log.clone();
        let exit = ProcessRunner::default().run(container, CancellationToken::new()).await;
        assert_eq!(exit.code, 3);
        assert_eq!(log.lines(None), ["hello\n", "oops\n"]);
    }

    #[tokio::test]
    async fn output_and_errors_are_in_the_order_in_which_they_were_written() {
        let script = "i=0; while [ $i -lt 50 ]; do echo $i; echo $((i + 1)) >&2; i=$((i + 2)); done";
        let container = shell(script);
        let log = container.log.clone();
        ProcessRunner::default().run(container, CancellationToken::new()).await;
        let expected: Vec<String> = (0..50).map(|number| format!("{number}\n")).collect();
        assert_eq!(log.lines(None), expected.iter().map(String::as_bytes).collect::<Vec<_>>());
    }

    #[tokio::test]
    async fn stop_asks_politely() {
        let stop = CancellationToken::new();
        stop.cancel();
        // exec: the shell itself would wait for its child before the trap.
        let exit = ProcessRunner::default().run(shell("exec sleep 1000"), stop).await;
        assert_eq!(exit.code, 128 + 15);
    }

    #[tokio::test]
    async fn a_mount_is_where_the_volume_lies() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("level"), "high\n").unwrap();
        let mut container = shell("cat /etc/app/level; cat $FILE");
        container.env = vec![("FILE".to_owned(), "/etc/app/level".to_owned())];
        container.mounts = vec![Mount { path: "/etc/app".to_owned(), lies: folder.path().to_owned() }];
        let log = container.log.clone();
        assert_eq!(ProcessRunner::default().run(container, CancellationToken::new()).await.code, 0);
        assert_eq!(log.lines(None), ["high\n", "high\n"]);
    }

    #[tokio::test]
    async fn no_such_program_is_an_exit() {
        let mut container = shell("");
        container.command = vec!["/no/such/program".to_owned()];
        let exit = ProcessRunner::default().run(container, CancellationToken::new()).await;
        assert_eq!(exit.code, NOT_FOUND);
        assert!(exit.message.contains("/no/such/program"), "{}", exit.message);
    }
}
