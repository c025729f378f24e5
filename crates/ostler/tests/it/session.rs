//! Starting `ostler`, and `ostler up` until it says that it is ready.

use std::io::{BufRead, BufReader, ErrorKind};
use std::path::PathBuf;
use std::process::{Child, ChildStderr, ChildStdout, Command, Output, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

/// How long anything is waited for. What comes is never late: it ends the wait, on a loaded machine after minutes.
pub(crate) const PATIENCE: Duration = Duration::from_secs(600);

pub(crate) fn ostler(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ostler"));
    command.args(args).env_remove("KUBECONFIG");
    command
}

/// `ostler up` on ports of its own.
fn up() -> Command {
    ostler(&["up", "--api", "127.0.0.1:0", "--gateway", "127.0.0.1:0"])
}

/// stdout, stderr and the exit code, as text.
pub(crate) fn outcome(output: &Output) -> (String, String, Option<i32>) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (text(&output.stdout), text(&output.stderr), output.status.code())
}

/// What `ask` finds in the end.
pub(crate) fn patiently<T>(what: &str, mut ask: impl FnMut() -> Option<T>) -> T {
    let began = Instant::now();
    loop {
        match ask() {
            Some(found) => return found,
            None => assert!(began.elapsed() < PATIENCE, "{what}: not after {} s", PATIENCE.as_secs()),
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// A folder of this test's own, removed at the end.
pub(crate) struct Folder(pub PathBuf);

/// A running `ostler up`; SIGTERM at the end.
pub(crate) struct Session {
    child: Child,
    stdout: BufReader<ChildStdout>,
    pub folder: Folder,
    pub api: String,
    pub gateway: String,
    pub kubeconfig: String,
}

// === impl Folder ===

impl Folder {
    pub(crate) fn new() -> Self {
        use std::os::unix::fs::DirBuilderExt;
        // One that is there already is of a run that was killed, and whose process number has come round again.
        let number = (0..).find_map(|number| {
            let path = std::env::temp_dir().join(format!("ostler-it-{}-{number}", std::process::id()));
            match std::fs::DirBuilder::new().mode(0o700).create(&path) {
                Ok(()) => Some(path),
                Err(error) if error.kind() == ErrorKind::AlreadyExists => None,
                Err(error) => panic!("{}: {error}", path.display()),
            }
        });
        Self(number.unwrap())
    }

    pub(crate) fn file(&self, name: &str, text: &str) -> String {
        let path = self.0.join(name);
        std::fs::write(&path, text).unwrap();
        path.display().to_string()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.0).ok();
    }
}

// === impl Session ===

impl Session {
    /// `ostler up` with ports of its own and `args`, once it has printed its line.
    pub(crate) fn start(args: &[&str]) -> Self {
        let folder = Folder::new();
        let data = folder.0.display().to_string();
        Self::of(up().args(["--data-dir", &data]).args(args), folder)
    }

    /// On a folder that stays, with the address of its API.
    pub(crate) fn start_on(data: &str, api: &str, args: &[&str]) -> Self {
        let mut command = ostler(&["up", "--gateway", "127.0.0.1:0", "--data-dir", data, "--api", api]);
        Self::of(command.args(args), Folder::new())
    }

    /// The same, with what it says on stderr.
    pub(crate) fn start_with_stderr(args: &[&str]) -> (Self, ChildStderr) {
        let folder = Folder::new();
        let data = folder.0.display().to_string();
        let mut session = Self::of(up().args(["--data-dir", &data]).args(args).stderr(Stdio::piped()), folder);
        let stderr = session.child.stderr.take().unwrap();
        (session, stderr)
    }

    fn of(command: &mut Command, folder: Folder) -> Self {
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        stdout.read_line(&mut line).unwrap();
        let word = |key: &str| {
            let found = line.split_whitespace().find_map(|word| word.strip_prefix(key));
            found.unwrap_or_else(|| panic!("{key} is missing in {line:?}")).to_owned()
        };
        let (gateway, kubeconfig) = (word("gateway="), word("kubeconfig="));
        let api = word("api=https://");
        Self { child, stdout, folder, api, gateway, kubeconfig }
    }

    /// Sends a signal and returns what else was printed, and the exit code.
    pub(crate) fn end(mut self, signal: Signal) -> (String, Option<i32>) {
        self.signal(signal);
        let mut rest = String::new();
        std::io::Read::read_to_string(&mut self.stdout, &mut rest).unwrap();
        (rest, self.child.wait().unwrap().code())
    }

    /// A process that was waited for has no number any more, or another's.
    fn signal(&mut self, signal: Signal) {
        if let Ok(None) = self.child.try_wait() {
            kill_process(Pid::from_child(&self.child), signal).unwrap();
        }
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.signal(Signal::TERM);
        self.child.wait().ok();
    }
}
