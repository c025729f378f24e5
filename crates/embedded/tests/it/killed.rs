//! A process that is killed while several clients write, again and again: what one of them was told is there afterwards.
//!
//! `EMBEDDED_KILL_ROUNDS` makes more rounds.

use std::collections::BTreeMap;
use std::env;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use embedded::Server;
use embedded::data_directory::{DataDirectory, Lock};
use embedded::store::Settings;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, Patch, PatchParams};
use serde_json::json;

/// Tells the child where to write.
const FOLDER: &str = "EMBEDDED_KILLED_IN";
const CLIENTS: usize = 4;

/// How long one write may take on the slowest machine.
const PATIENCE: Duration = Duration::from_secs(300);

/// What a client was told: its number, how often it had written, and the resource version.
type Told = BTreeMap<usize, (u64, u64)>;

#[test]
fn every_acknowledged_write_survives_a_kill() {
    if let Some(folder) = env::var_os(FOLDER) {
        return write(Path::new(&folder));
    }
    let kept = tempfile::tempdir().unwrap();
    let folder = kept.path().to_owned();
    let rounds = env::var("EMBEDDED_KILL_ROUNDS").map_or(12, |rounds| rounds.parse().unwrap());
    let mut told = Told::new();
    for round in 0..rounds {
        let before = server(&folder).store_revision();
        let news = kill_while_writing(&folder, fastrand::usize(1..150));
        let first = news.iter().map(|(_, _, version)| *version).min().unwrap();
        assert!(first > before, "round {round}: version {first} was given before, {before}");
        for (client, count, version) in news {
            let last = told.entry(client).or_default();
            *last = (*last).max((count, version));
        }
        check(&server(&folder), &told);
    }
}

/// The cluster in the folder, in this process.
struct Opened(Server, #[allow(dead_code, reason = "holds the lock")] DataDirectory);

impl Opened {
    fn store_revision(&self) -> u64 {
        let newest = self.0.list("configmaps").iter().map(|object| version(object)).max();
        newest.unwrap_or_default()
    }
}

fn server(folder: &Path) -> Opened {
    let directory = DataDirectory::of(Lock::take(folder).unwrap());
    // The file is begun anew every few groups of writes.
    let settings = Settings { rewrite_after: 20_000, ..Settings::default() };
    Opened(Server::on(&crate::ports(), directory.store(settings).unwrap()), directory)
}

fn version(object: &serde_json::Value) -> u64 {
    object["metadata"]["resourceVersion"].as_str().unwrap().parse().unwrap()
}

/// Starts the writers, and kills them after so many writes. Returns what they were told until then.
fn kill_while_writing(folder: &Path, writes: usize) -> Vec<(usize, u64, u64)> {
    let mut command = Command::new(env::current_exe().unwrap());
    command.args(["--exact", "killed::every_acknowledged_write_survives_a_kill", "--nocapture"]);
    let mut child = command.env(FOLDER, folder).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut told = Vec::new();
    let output = BufReader::new(child.stdout.take().unwrap());
    let (sender, lines) = mpsc::channel();
    // Lines that were begun are whole: each is one write of less than a pipe's buffer.
    thread::spawn(move || output.lines().map(Result::unwrap).try_for_each(|line| sender.send(line)));
    loop {
        let line = match lines.recv_timeout(PATIENCE) {
            Ok(line) => line,
            Err(RecvTimeoutError::Disconnected) => break,
            Err(RecvTimeoutError::Timeout) => {
                child.kill().unwrap();
                panic!("the writers stand still after {} writes", told.len());
            }
        };
        let Some(numbers) = line.strip_prefix("told ") else { continue };
        let numbers: Vec<u64> = numbers.split(' ').map(|number| number.parse().unwrap()).collect();
        told.push((usize::try_from(numbers[0]).unwrap(), numbers[1], numbers[2]));
        if told.len() == writes {
            child.kill().unwrap();
        }
    }
    child.wait().unwrap();
    told
}

fn check(opened: &Opened, told: &Told) {
    for (client, (count, told_version)) in told {
        let found = opened.0.get("configmaps", "default", &format!("client-{client}"));
        let object = found.unwrap_or_else(|| panic!("what client {client} wrote is gone"));
        let stored: u64 = object["data"]["count"].as_str().unwrap().parse().unwrap();
        assert!(stored >= *count, "client {client} was told of write {count}, and there is {stored}");
        assert!(version(&object) >= *told_version, "client {client} was told of version {told_version}");
        assert_eq!(object["data"]["again"], object["data"]["count"], "half a write");
    }
}

/// The child: writes until it is killed.
#[tokio::main(flavor = "current_thread")]
async fn write(folder: &Path) {
    let opened = server(folder);
    let clients = (0..CLIENTS).map(|client| {
        let api: Api<ConfigMap> = Api::namespaced(kube::Client::new(opened.0.router(), "default"), "default");
        async move {
            let name = format!("client-{client}");
            let known = api.get_opt(&name).await.unwrap().and_then(|known| known.data);
            let mut count: u64 = known.map_or(0, |data| data["count"].parse().unwrap());
            loop {
                count += 1;
                let data = json!({"count": count.to_string(), "again": count.to_string(), "pad": "x".repeat(500)});
                let patch = json!({"apiVersion": "v1", "kind": "ConfigMap", "data": data});
                let written = api.patch(&name, &PatchParams::apply("client").force(), &Patch::Apply(patch)).await;
                let version = written.unwrap().metadata.resource_version.unwrap();
                let line = format!("told {client} {count} {version}\n");
                std::io::stdout().write_all(line.as_bytes()).unwrap();
            }
        }
    });
    let never: Vec<()> = futures::future::join_all(clients).await;
    drop(never);
}

/// Only the owner reads what is kept.
#[test]
fn files_are_private() {
    use std::os::unix::fs::PermissionsExt;
    let kept = tempfile::tempdir().unwrap();
    let folder = kept.path().to_owned();
    let opened = server(&folder);
    let first = opened.1.credentials().unwrap();
    let mode = |name: &str| std::fs::metadata(folder.join(name)).unwrap().permissions().mode() & 0o777;
    assert_eq!([mode("store"), mode("store/objects.log"), mode("credentials.json")], [0o700, 0o600, 0o600]);

    // The same ones again, unless somebody may have read them.
    let url = "https://127.0.0.1:6443";
    let text = |credentials| embedded::serve::kubeconfig(credentials, url);
    assert_eq!(text(&opened.1.credentials().unwrap()), text(&first));
    std::fs::set_permissions(folder.join("credentials.json"), std::fs::Permissions::from_mode(0o640)).unwrap();
    let refused = opened.1.credentials().err().unwrap().to_string();
    assert!(refused.ends_with("credentials.json: others can read it, its mode is 640"), "{refused}");
}
