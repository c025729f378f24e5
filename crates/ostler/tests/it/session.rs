//! Runs the `ostler` binary, and starts `ostler up` and waits until it is ready.

use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Child, ChildStderr, ChildStdout, Command, Output, Stdio};
use std::time::{Duration, Instant};

use kube::config::{KubeConfigOptions, Kubeconfig};
use rustix::process::{Pid, Signal, kill_process};

/// Longest time to wait for a result. It is long because a loaded host may need minutes; a wait ends as soon as the
/// result arrives.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(600);

/// Returns a command that runs the binary.
pub(crate) fn ostler(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ostler"));
    command.args(args).env_remove("KUBECONFIG");
    command
}

/// Returns a command for `ostler up` with free ports.
fn up() -> Command {
    ostler(&["up", "--api", "127.0.0.1:0", "--gateway", "127.0.0.1:0"])
}

/// Returns standard output and standard error as text, and the exit code.
pub(crate) fn outcome(output: &Output) -> (String, String, Option<i32>) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (text(&output.stdout), text(&output.stderr), output.status.code())
}

/// Sends the `body` of a chat completion to the gateway at `address`, with or without `http://`, and returns the whole response.
pub(crate) fn post_chat(address: &str, body: &str) -> String {
    let length = body.len();
    let head = format!(
        "POST /v1/chat/completions HTTP/1.0\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n"
    );
    send(address, &(head + body))
}

/// Sends a request of HTTP/1.0 to the server at `address`, with or without `http://`, and returns the whole response.
pub(crate) fn send(address: &str, request: &str) -> String {
    let mut connection = TcpStream::connect(address.trim_start_matches("http://")).unwrap();
    connection.set_read_timeout(Some(TIMEOUT)).unwrap();
    connection.write_all(request.as_bytes()).unwrap();
    let mut response = String::new();
    connection.read_to_string(&mut response).unwrap();
    response
}

/// Calls `poll` until it returns a value. `description` names the expected result in the panic message.
pub(crate) fn wait_until<T>(description: &str, mut poll: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        match poll() {
            Some(value) => return value,
            None => {
                assert!(start.elapsed() < TIMEOUT, "timed out after {} s waiting for {description}", TIMEOUT.as_secs());
            }
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// A temporary directory that is removed on drop.
pub(crate) struct TempDirectory(pub PathBuf);

/// A running `ostler up`. It receives SIGTERM on drop.
pub(crate) struct Session {
    child: Child,
    stdout: BufReader<ChildStdout>,
    pub directory: TempDirectory,
    pub api: String,
    pub gateway: String,
    pub kubeconfig: String,
}

// === impl TempDirectory ===

impl TempDirectory {
    pub(crate) fn new() -> Self {
        use std::os::unix::fs::DirBuilderExt;
        // The directory may already exist if a killed test run had the same process id.
        let path = (0..).find_map(|number| {
            let path = std::env::temp_dir().join(format!("ostler-it-{}-{number}", std::process::id()));
            match std::fs::DirBuilder::new().mode(0o700).create(&path) {
                Ok(()) => Some(path),
                Err(error) if error.kind() == ErrorKind::AlreadyExists => None,
                Err(error) => panic!("{}: {error}", path.display()),
            }
        });
        Self(path.unwrap())
    }

    /// Writes a file and returns its path.
    pub(crate) fn file(&self, name: &str, text: &str) -> String {
        let path = self.0.join(name);
        std::fs::write(&path, text).unwrap();
        path.display().to_string()
    }
}

impl Drop for TempDirectory {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.0).ok();
    }
}

// === impl Session ===

impl Session {
    /// Starts `ostler up` with free ports and `args`, and waits until it is ready.
    pub(crate) fn start(args: &[&str]) -> Self {
        let directory = TempDirectory::new();
        let data = directory.0.display().to_string();
        Self::from_command(up().args(["--data-dir", &data]).args(args), directory)
    }

    /// Starts `ostler up` with a given data directory and API address.
    pub(crate) fn start_with_data_dir(data: &str, api: &str, args: &[&str]) -> Self {
        let mut command = ostler(&["up", "--gateway", "127.0.0.1:0", "--data-dir", data, "--api", api]);
        Self::from_command(command.args(args), TempDirectory::new())
    }

    /// Like [`Session::start`], with a data directory that is relative to the working directory.
    pub(crate) fn start_with_relative_data_dir(data: &str) -> Self {
        let directory = TempDirectory::new();
        let mut command = up();
        command.args(["--data-dir", data]).current_dir(&directory.0);
        Self::from_command(&mut command, directory)
    }

    /// Like [`Session::start`]; also returns standard error.
    pub(crate) fn start_with_stderr(args: &[&str]) -> (Self, ChildStderr) {
        let directory = TempDirectory::new();
        let data = directory.0.display().to_string();
        let mut session =
            Self::from_command(up().args(["--data-dir", &data]).args(args).stderr(Stdio::piped()), directory);
        let stderr = session.child.stderr.take().unwrap();
        (session, stderr)
    }

    fn from_command(command: &mut Command, directory: TempDirectory) -> Self {
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        stdout.read_line(&mut line).unwrap();
        let field = |key: &str| {
            let value = line.split_whitespace().find_map(|word| word.strip_prefix(key));
            value.unwrap_or_else(|| panic!("{key} is missing in {line:?}")).to_owned()
        };
        let (gateway, kubeconfig) = (field("gateway="), field("kubeconfig="));
        let api = field("api=https://");
        Self { child, stdout, directory, api, gateway, kubeconfig }
    }

    /// Returns a client of the cluster.
    pub(crate) async fn client(&self) -> kube::Client {
        let config = Kubeconfig::read_from(&self.kubeconfig).unwrap();
        let mut config = kube::Config::from_custom_kubeconfig(config, &KubeConfigOptions::default()).await.unwrap();
        config.proxy_url = None;
        rustls::crypto::ring::default_provider().install_default().ok();
        kube::Client::try_from(config).unwrap()
    }

    /// Sends a signal, and returns the remaining standard output and the exit code.
    pub(crate) fn stop(mut self, signal: Signal) -> (String, Option<i32>) {
        self.signal(signal);
        let mut output = String::new();
        std::io::Read::read_to_string(&mut self.stdout, &mut output).unwrap();
        (output, self.child.wait().unwrap().code())
    }

    /// Sends a signal unless the process has exited: its id may belong to another process by then.
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
