//! Kills a process repeatedly while several clients write, and checks that every acknowledged write survives.
//!
//! `EMBEDDED_KILL_ROUNDS` sets the number of rounds.

use std::collections::BTreeMap;
use std::env;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use embedded::ports::ServerPorts;
use embedded::{DataDirectory, DirectoryLock, Server, StoreSettings};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, Patch, PatchParams};
use serde_json::json;

/// Environment variable that passes the data directory to the child process.
const DIRECTORY_VARIABLE: &str = "EMBEDDED_KILLED_IN";
const CLIENTS: usize = 4;

/// Time limit of a write, sufficient for slow machines.
const WRITE_TIMEOUT: Duration = Duration::from_secs(300);

/// Acknowledged writes by client number: count of writes and resource version.
type AcknowledgedWrites = BTreeMap<usize, (u64, u64)>;

#[test]
fn every_acknowledged_write_survives_a_kill() {
    if let Some(directory) = env::var_os(DIRECTORY_VARIABLE) {
        return write(Path::new(&directory));
    }
    let temporary = tempfile::tempdir().unwrap();
    let directory = temporary.path().to_owned();
    let rounds = env::var("EMBEDDED_KILL_ROUNDS").map_or(12, |rounds| rounds.parse().unwrap());
    let mut acknowledged = AcknowledgedWrites::new();
    for round in 0..rounds {
        let before = server(&directory).latest_version();
        let new_writes = kill_while_writing(&directory, fastrand::usize(1..150));
        let first = new_writes.iter().map(|(_, _, version)| *version).min().unwrap();
        assert!(first > before, "round {round}: version {first} is not newer than {before}");
        for (client, count, version) in new_writes {
            let last = acknowledged.entry(client).or_default();
            *last = (*last).max((count, version));
        }
        check(&server(&directory), &acknowledged);
    }
}

/// Server with a data directory, in this process.
struct PersistentServer(Server, #[allow(dead_code, reason = "holds the lock")] DataDirectory);

impl PersistentServer {
    fn latest_version(&self) -> u64 {
        let newest = self.0.list("configmaps").iter().map(|object| version(object)).max();
        newest.unwrap_or_default()
    }
}

fn server(directory: &Path) -> PersistentServer {
    let directory = DataDirectory::new(DirectoryLock::acquire(directory).unwrap());
    // A small value, so that a checkpoint is written every few batches.
    let settings = StoreSettings { checkpoint_after: 20_000, ..StoreSettings::default() };
    PersistentServer(Server::with_store(&ServerPorts::default(), directory.open_store(settings).unwrap()), directory)
}

fn version(object: &serde_json::Value) -> u64 {
    object["metadata"]["resourceVersion"].as_str().unwrap().parse().unwrap()
}

/// Starts the writers, kills them after `writes` acknowledgements, and returns the acknowledged writes.
fn kill_while_writing(directory: &Path, writes: usize) -> Vec<(usize, u64, u64)> {
    let mut command = Command::new(env::current_exe().unwrap());
    command.args(["--exact", "crash_recovery::every_acknowledged_write_survives_a_kill", "--nocapture"]);
    let mut child =
        command.env(DIRECTORY_VARIABLE, directory).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut acknowledged = Vec::new();
    let output = BufReader::new(child.stdout.take().unwrap());
    let (sender, lines) = mpsc::channel();
    // Lines are never partial, because each one is written with one call and is smaller than a pipe buffer.
    thread::spawn(move || output.lines().map(Result::unwrap).try_for_each(|line| sender.send(line)));
    loop {
        let line = match lines.recv_timeout(WRITE_TIMEOUT) {
            Ok(line) => line,
            Err(RecvTimeoutError::Disconnected) => break,
            Err(RecvTimeoutError::Timeout) => {
                child.kill().unwrap();
                panic!("timed out waiting for a write after {} acknowledged writes", acknowledged.len());
            }
        };
        let Some(numbers) = line.strip_prefix("acknowledged ") else { continue };
        let numbers: Vec<u64> = numbers.split(' ').map(|number| number.parse().unwrap()).collect();
        acknowledged.push((usize::try_from(numbers[0]).unwrap(), numbers[1], numbers[2]));
        if acknowledged.len() == writes {
            child.kill().unwrap();
        }
    }
    child.wait().unwrap();
    acknowledged
}

fn check(opened: &PersistentServer, acknowledged: &AcknowledgedWrites) {
    for (client, (count, acknowledged_version)) in acknowledged {
        let object = opened.0.get("configmaps", "default", &format!("client-{client}"));
        let object = object.unwrap_or_else(|| panic!("the object of client {client} is missing"));
        let stored: u64 = object["data"]["count"].as_str().unwrap().parse().unwrap();
        assert!(stored >= *count, "client {client}: write {count} was acknowledged, found {stored}");
        assert!(
            version(&object) >= *acknowledged_version,
            "client {client}: version {acknowledged_version} was acknowledged"
        );
        assert_eq!(object["data"]["again"], object["data"]["count"], "partial write");
    }
}

/// Child process: writes until it is killed.
#[tokio::main(flavor = "current_thread")]
async fn write(directory: &Path) {
    let opened = server(directory);
    let clients = (0..CLIENTS).map(|client| {
        let api: Api<ConfigMap> = Api::namespaced(kube::Client::new(embedded::router(&opened.0), "default"), "default");
        async move {
            let name = format!("client-{client}");
            let existing = api.get_opt(&name).await.unwrap().and_then(|existing| existing.data);
            let mut count: u64 = existing.map_or(0, |data| data["count"].parse().unwrap());
            loop {
                count += 1;
                let data = json!({"count": count.to_string(), "again": count.to_string(), "pad": "x".repeat(500)});
                let patch = json!({"apiVersion": "v1", "kind": "ConfigMap", "data": data});
                let written = api.patch(&name, &PatchParams::apply("client").force(), &Patch::Apply(patch)).await;
                let version = written.unwrap().metadata.resource_version.unwrap();
                let line = format!("acknowledged {client} {count} {version}\n");
                std::io::stdout().write_all(line.as_bytes()).unwrap();
            }
        }
    });
    let unreachable: Vec<()> = futures::future::join_all(clients).await;
    drop(unreachable);
}

/// All persisted files are readable by their owner only.
#[test]
fn files_are_private() {
    use std::os::unix::fs::PermissionsExt;
    let temporary = tempfile::tempdir().unwrap();
    let directory = temporary.path().to_owned();
    let opened = server(&directory);
    let first = opened.1.credentials().unwrap();
    let mode = |name: &str| std::fs::metadata(directory.join(name)).unwrap().permissions().mode() & 0o777;
    assert_eq!([mode("store"), mode("store/objects.log"), mode("credentials.json")], [0o700, 0o600, 0o600]);

    // Reopening returns the same credentials, unless other users can read the file.
    let url = "https://127.0.0.1:6443";
    let text = |credentials| embedded::kubeconfig(credentials, url, &[]);
    assert_eq!(text(&opened.1.credentials().unwrap()), text(&first));
    std::fs::set_permissions(directory.join("credentials.json"), std::fs::Permissions::from_mode(0o640)).unwrap();
    let error = opened.1.credentials().err().unwrap().to_string();
    assert!(error.ends_with("credentials.json: file mode 640 grants access to other users; expected 600"), "{error}");
}
