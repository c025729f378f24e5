//! The launcher over sockets, with processes.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use actuation::{
    Answer, Call, DeletePurpose, GpuSource, InstanceOptions, InstanceRecord, LauncherDaemon, LauncherOptions,
    ObservedInstance, Request, Target,
};
use rstest::rstest;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

const INSTANCES: &str = "/v2/vllm/instances";

/// A launcher that runs. Its engine command is `sh -c`.
struct Running {
    address: SocketAddr,
    terminate: CancellationToken,
    task: JoinHandle<std::io::Result<()>>,
    directory: TempDir,
}

/// A response with its headers.
struct Response {
    status: u16,
    head: String,
    body: String,
}

/// The lines of a watch.
type Events = Lines<BufReader<TcpStream>>;

impl Running {
    async fn start(edit: impl FnOnce(&mut InstanceOptions)) -> Running {
        let directory = tempfile::tempdir().unwrap();
        let mut instances = InstanceOptions {
            engine_command: ["sh", "-c"].map(str::to_owned).to_vec(),
            gpus: GpuSource::Mock(["GPU-a", "GPU-b", "GPU-c"].map(str::to_owned).to_vec()),
            max_instances: 4,
            log_directory: directory.path().to_owned(),
            log_bytes: 1 << 20,
            stop_timeout: Duration::from_secs(3600),
        };
        edit(&mut instances);
        let options = LauncherOptions { address: ([127, 0, 0, 1], 0).into(), instances };
        let daemon = LauncherDaemon::bind(options).await.unwrap();
        let address = daemon.address().unwrap();
        let terminate = CancellationToken::new();
        let task = tokio::spawn(daemon.run(terminate.clone()));
        Running { address, terminate, task, directory }
    }

    async fn call(&self, method: &str, path: &str, headers: &str, body: &str) -> Response {
        let mut stream = TcpStream::connect(self.address).await.unwrap();
        let head = format!("{method} {path} HTTP/1.1\r\nHost: l\r\nConnection: close\r\n{headers}");
        stream.write_all(format!("{head}Content-Length: {}\r\n\r\n{body}", body.len()).as_bytes()).await.unwrap();
        let mut response = String::new();
        stream.read_to_string(&mut response).await.unwrap();
        let (head, body) = response.split_once("\r\n\r\n").unwrap();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        Response { status, head: head.to_lowercase(), body: body.to_owned() }
    }

    async fn get(&self, path: &str) -> (u16, Value) {
        self.call("GET", path, "", "").await.json()
    }

    async fn put(&self, id: &str, body: &Value) -> (u16, Value) {
        self.call("PUT", &format!("{INSTANCES}/{id}"), "", &body.to_string()).await.json()
    }

    /// Starts a shell script, and checks that it was started.
    async fn run_script(&self, id: &str, script: &str) -> Value {
        let (status, state) = self.put(id, &json!({"args": [script]})).await;
        assert_eq!(status, 201, "{state}");
        state
    }

    async fn delete(&self, id: &str) -> (u16, Value) {
        self.call("DELETE", &format!("{INSTANCES}/{id}"), "", "").await.json()
    }

    async fn watch(&self, query: &str) -> Events {
        let mut stream = TcpStream::connect(self.address).await.unwrap();
        // HTTP/1.0 has no chunks.
        stream.write_all(format!("GET {INSTANCES}/watch{query} HTTP/1.0\r\n\r\n").as_bytes()).await.unwrap();
        let mut lines = BufReader::new(stream).lines();
        while lines.next_line().await.unwrap().is_some_and(|line| !line.is_empty()) {}
        lines
    }

    /// Waits until the log of an instance contains `text`, and returns it.
    async fn log_with(&self, id: &str, text: &str) -> String {
        loop {
            let log = self.call("GET", &format!("{INSTANCES}/{id}/log"), "", "").await;
            if log.status == 200 && log.body.contains(text) {
                return log.body;
            }
            tokio::task::yield_now().await;
        }
    }

    async fn end(self) {
        self.terminate.cancel();
        self.task.await.unwrap().unwrap();
    }
}

impl Response {
    fn json(&self) -> (u16, Value) {
        (self.status, serde_json::from_str(&self.body).unwrap_or_else(|_| panic!("{}", self.body)))
    }
}

async fn next_event(events: &mut Events) -> (String, Value) {
    let event: Value = serde_json::from_str(&events.next_line().await.unwrap().unwrap()).unwrap();
    let object = &event["object"];
    (format!("{} {}", event["type"].as_str().unwrap(), object["instance_id"].as_str().unwrap()), object.clone())
}

/// Returns whether a process runs. A zombie does not.
fn is_running(pid: &str) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(')').is_some_and(|(_, fields)| !fields.trim_start().starts_with(['Z', 'X']))
}

/// The wire format of the deployed launcher.
// spec: DP-21, DP-108
#[tokio::test]
async fn request_carries_arguments_variables_and_gpus() {
    let launcher = Running::start(|_| {}).await;
    let body = json!({
        "command": ["sh", "-c", "echo $0 $A $CUDA_VISIBLE_DEVICES; sleep 9999"],
        "args": ["--model m"],
        "gpu_uuids": ["GPU-c", "GPU-a"],
        "env_vars": {"A": "b", "CUDA_VISIBLE_DEVICES": "7"},
        "annotations": {"isc-name": "i"},
    });
    let (status, state) = launcher.put("x", &body).await;
    let mut expected = body.clone();
    expected["env_vars"]["CUDA_VISIBLE_DEVICES"] = "2,0".into();
    for (field, value) in [("status", "running".into()), ("instance_id", "x".into()), ("revision", json!(1))] {
        expected[field] = value;
    }
    assert_eq!((status, &state), (201, &expected));
    assert_eq!(launcher.log_with("x", "\n").await, "--model m b 2,0\n");
    assert_eq!(launcher.get(&format!("{INSTANCES}/x")).await, (200, expected.clone()));
    let list = json!({"revision": 1, "total_instances": 1, "running_instances": 1, "instances": [expected]});
    assert_eq!(launcher.get(INSTANCES).await, (200, list));
    let ids = json!({"revision": 1, "count": 1, "instance_ids": ["x"]});
    assert_eq!(launcher.get(&format!("{INSTANCES}?detail=false")).await, (200, ids));
    let (status, deleted) = launcher.delete("x").await;
    assert_eq!((status, &deleted["status"], &deleted["revision"]), (200, &"stopped".into(), &json!(2)));
    launcher.end().await;
}

// spec: DP-22
#[tokio::test]
async fn engine_command_precedes_the_options() {
    let launcher = Running::start(|options| options.engine_command = vec!["echo".to_owned()]).await;
    let (status, state) = launcher.call("POST", INSTANCES, "", r#"{"options": "--model  m"}"#).await.json();
    assert_eq!((status, &state["options"]), (201, &"--model  m".into()));
    let id = state["instance_id"].as_str().unwrap();
    assert_eq!(launcher.log_with(id, "\n").await, "--model m\n");
    launcher.end().await;
}

#[rstest]
#[case::duplicate("running", json!({"args": ["true"]}), 409, "InstanceExists")]
#[case::bad_id("a%2Fb", json!({"args": ["true"]}), 422, "InvalidRequest")]
#[case::too_large("x", json!({"options": "x".repeat(300_000)}), 413, "RequestTooLarge")]
#[case::no_command("x", json!({}), 422, "InvalidRequest")]
#[case::unknown_gpu("x", json!({"args": ["true"], "gpu_uuids": ["GPU-z"]}), 422, "UnknownGpu")]
#[case::no_program("x", json!({"command": ["/no/such/program"]}), 422, "InvalidCommand")]
#[case::same_port("x", json!({"options": "--port=8005"}), 507, "PortInUse")]
#[case::too_many("x", json!({"args": ["true"]}), 507, "TooManyInstances")]
#[tokio::test]
async fn errors_are_distinct(#[case] id: &str, #[case] body: Value, #[case] status: u16, #[case] code: &str) {
    let launcher = Running::start(|options| {
        options.max_instances = if code == "TooManyInstances" { 1 } else { 2 };
    })
    .await;
    let running = json!({"command": ["sleep", "9999"], "annotations": {"inference-port": "8005"}});
    assert_eq!(launcher.put("running", &running).await.0, 201);
    let (actual, error) = launcher.put(id, &body).await;
    assert_eq!((actual, &error["code"]), (status, &code.into()), "{error}");
    assert!(error["detail"].as_str().is_some_and(|detail| !detail.is_empty()));
    assert_eq!(launcher.get(INSTANCES).await.1["total_instances"], 1, "nothing remains of the rejected instance");
    assert_eq!(std::fs::read_dir(launcher.directory.path()).unwrap().count(), 1);
    launcher.end().await;
}

#[tokio::test]
async fn missing_instances_are_not_found() {
    let launcher = Running::start(|_| {}).await;
    for (method, path) in [("GET", "x"), ("DELETE", "x"), ("GET", "x/log")] {
        let (status, error) = launcher.call(method, &format!("{INSTANCES}/{path}"), "", "").await.json();
        assert_eq!((status, &error["code"]), (404, &"InstanceNotFound".into()), "{method} {path}");
    }
    assert_eq!(launcher.get("/health").await, (200, json!({"status": "OK"})));
    launcher.end().await;
}

/// A worker that ignores SIGTERM, one that has left the process group, and one that outlives the main process.
#[tokio::test]
async fn deletion_ends_all_processes() {
    let launcher = Running::start(|options| options.stop_timeout = Duration::ZERO).await;
    let script = "trap '' TERM; sh -c 'trap \"\" TERM; echo pid $$; sleep 9999' & \
                  setsid sh -c 'echo pid $$; sleep 9999' & echo pid $$; while :; do sleep 1; done";
    launcher.run_script("x", script).await;
    let pids = loop {
        let log = launcher.log_with("x", "pid").await;
        let pids: Vec<String> = log.lines().filter_map(|line| Some(line.strip_prefix("pid ")?.to_owned())).collect();
        if pids.len() == 3 {
            break pids;
        }
    };
    assert!(pids.iter().all(|pid| is_running(pid)));
    let (status, state) = launcher.delete("x").await;
    assert_eq!((status, &state["exit_code"]), (200, &json!(-9)));
    let is_reaped = |pid: &String| !std::path::Path::new("/proc").join(pid).exists();
    assert!(pids.iter().all(is_reaped), "no zombie remains");
    assert_eq!(std::fs::read_dir(launcher.directory.path()).unwrap().count(), 0, "the log is removed");
    launcher.end().await;
}

#[tokio::test]
async fn workers_end_with_the_main_process() {
    let launcher = Running::start(|_| {}).await;
    let mut events = launcher.watch("").await;
    launcher.run_script("x", "sleep 9999 & echo $!; exit 3").await;
    assert_eq!(next_event(&mut events).await.0, "CREATED x");
    let (event, state) = next_event(&mut events).await;
    assert_eq!((event.as_str(), &state["status"], &state["exit_code"]), ("STOPPED x", &"stopped".into(), &json!(3)));
    let pid = launcher.log_with("x", "\n").await;
    assert!(!is_running(pid.trim()));
    assert_eq!(launcher.get(INSTANCES).await.1["running_instances"], 0);
    let (status, deleted) = launcher.delete("x").await;
    assert_eq!((status, &deleted["exit_code"]), (200, &json!(3)));
    assert_eq!(next_event(&mut events).await.0, "DELETED x");
    launcher.end().await;
}

/// A deletion takes as long as the engine takes to end. Meanwhile, other requests are answered.
#[tokio::test]
async fn deletion_blocks_no_other_request() {
    let launcher = Running::start(|_| {}).await;
    let gate = launcher.directory.path().join("gate");
    let script = format!(
        "trap 'while [ ! -e {} ]; do sleep 0.01; done; exit 0' TERM; echo up; while :; do sleep 0.01; done",
        gate.display()
    );
    launcher.run_script("slow", &script).await;
    launcher.log_with("slow", "up").await;
    let deletion = async { launcher.delete("slow").await };
    let others = async {
        assert_eq!(launcher.get("/health").await.0, 200);
        launcher.run_script("other", "exit 0").await;
        assert_eq!(launcher.put("slow", &json!({"args": ["true"]})).await.0, 409, "it is not gone yet");
        assert_eq!(launcher.delete("other").await.0, 200);
        assert_eq!(launcher.get(&format!("{INSTANCES}/slow")).await.1["status"], "running");
        std::fs::write(&gate, "").unwrap();
    };
    let ((status, state), ()) = tokio::join!(deletion, others);
    assert_eq!((status, &state["exit_code"]), (200, &json!(0)));
    launcher.end().await;
}

#[tokio::test]
async fn deletion_goes_on_without_its_client() {
    let launcher = Running::start(|_| {}).await;
    launcher.run_script("x", "sleep 9999").await;
    let mut events = launcher.watch("?since=1").await;
    let mut stream = TcpStream::connect(launcher.address).await.unwrap();
    stream.write_all(format!("DELETE {INSTANCES}/x HTTP/1.1\r\nHost: l\r\n\r\n").as_bytes()).await.unwrap();
    drop(stream);
    assert_eq!(next_event(&mut events).await.0, "DELETED x");
    launcher.end().await;
}

#[tokio::test]
async fn watch_continues_from_a_revision() {
    let launcher = Running::start(|_| {}).await;
    for id in ["a", "b"] {
        launcher.run_script(id, "sleep 9999").await;
    }
    launcher.delete("a").await;
    let mut from_start = launcher.watch("?since=0").await;
    for expected in ["CREATED a", "CREATED b", "DELETED a"] {
        assert_eq!(next_event(&mut from_start).await.0, expected);
    }
    let mut initial = launcher.watch("").await;
    assert_eq!(next_event(&mut initial).await.0, "CREATED b");
    let mut resumed = launcher.watch("?since=2").await;
    assert_eq!(next_event(&mut resumed).await.0, "DELETED a");
    launcher.delete("b").await;
    for events in [&mut from_start, &mut initial, &mut resumed] {
        assert_eq!(next_event(events).await.0, "DELETED b");
    }
    let (status, error) = launcher.get(&format!("{INSTANCES}/watch?since=99")).await;
    assert_eq!((status, &error["code"]), (410, &"RevisionUnavailable".into()), "of a launcher that ran before");
    assert_eq!(launcher.get(&format!("{INSTANCES}/watch?since=x")).await.0, 422);
    launcher.end().await;
    assert_eq!(initial.next_line().await.unwrap(), None, "the launcher closes the stream");
}

#[rstest]
#[case::all("", 200, "bytes 2-9/10", "23456789")]
#[case::range("bytes=3-4", 206, "bytes 3-4/10", "34")]
#[case::open("bytes=8-", 206, "bytes 8-9/10", "89")]
#[case::suffix("bytes=-1", 206, "bytes 9-9/10", "9")]
#[case::overwritten_start("bytes=0-3", 206, "bytes 2-3/10", "23")]
#[case::overwritten("bytes=0-1", 416, "bytes */10", "")]
#[case::beyond("bytes=10-", 416, "bytes */10", "")]
#[tokio::test]
async fn ranges_of_logs(#[case] range: &str, #[case] status: u16, #[case] content_range: &str, #[case] body: &str) {
    let launcher = Running::start(|options| options.log_bytes = 8).await;
    launcher.run_script("x", "printf 0123456789").await;
    launcher.log_with("x", "9").await;
    let header = if range.is_empty() { String::new() } else { format!("Range: {range}\r\n") };
    let response = launcher.call("GET", &format!("{INSTANCES}/x/log"), &header, "").await;
    assert_eq!((response.status, response.body.as_str()), (status, body));
    assert!(response.head.contains(&format!("content-range: {content_range}")), "{}", response.head);
    launcher.end().await;
}

#[tokio::test]
async fn invalid_ranges_are_rejected() {
    let launcher = Running::start(|_| {}).await;
    launcher.run_script("x", "true").await;
    let response = launcher.call("GET", &format!("{INSTANCES}/x/log"), "Range: bytes=-0\r\n", "").await;
    assert_eq!(response.json().0, 400);
    launcher.end().await;
}

#[tokio::test]
async fn termination_deletes_all_instances() {
    let launcher = Running::start(|_| {}).await;
    let mut pids = Vec::new();
    for id in ["a", "b", "c"] {
        launcher.run_script(id, "echo $$; exec sleep 9999").await;
        pids.push(launcher.log_with(id, "\n").await.trim().to_owned());
    }
    let mut events = launcher.watch("?since=3").await;
    let directory: PathBuf = launcher.directory.path().to_owned();
    launcher.terminate.cancel();
    let mut deleted = Vec::new();
    for _ in 0..3 {
        deleted.push(next_event(&mut events).await.0);
    }
    deleted.sort();
    assert_eq!(deleted, ["DELETED a", "DELETED b", "DELETED c"]);
    launcher.task.await.unwrap().unwrap();
    assert!(!pids.iter().any(|pid| is_running(pid)));
    assert_eq!(std::fs::read_dir(directory).unwrap().count(), 0);
}

#[tokio::test]
async fn delete_all_returns_the_stopped_instances() {
    let launcher = Running::start(|_| {}).await;
    for id in ["a", "b"] {
        launcher.run_script(id, "sleep 9999").await;
    }
    let (status, result) = launcher.call("DELETE", INSTANCES, "", "").await.json();
    assert_eq!((status, &result["status"], &result["total_stopped"]), (200, &"all_stopped".into(), &json!(2)));
    assert_eq!(result["stopped_instances"][0]["instance_id"], "a");
    assert_eq!(launcher.get(INSTANCES).await.1["total_instances"], 0);
    launcher.end().await;
}

/// The requests of the controller: following the instances returns as soon as one changes.
// spec: DP-21
#[tokio::test]
async fn controller_creates_follows_and_deletes() {
    let running = Running::start(|_| {}).await;
    let perform = async |request: Request| {
        let target = Target::Launcher("uid".to_owned());
        let (ip, port) = (running.address.ip().to_string(), running.address.port());
        let timeout = Duration::from_secs(600);
        actuation::perform(&Call { node: "n".to_owned(), target, ip, port, request, timeout }).await
    };
    let create = || {
        let config = json!({"args": ["sleep 3600"], "gpu_uuids": ["GPU-b"], "annotations": {"inference-port": "9"}});
        perform(Request::CreateInstance { id: "a".to_owned(), config })
    };
    let delete = || perform(Request::DeleteInstance { id: "a".to_owned(), purpose: DeletePurpose::Victim });
    let empty = |revision| Ok(Answer::Instances { revision, instances: BTreeMap::new() });
    assert_eq!(perform(Request::Instances { after: None }).await, empty(0));
    let (followed, created) = tokio::join!(perform(Request::Instances { after: Some(0) }), create());
    assert_eq!(created, Ok(Answer::InstanceCreated { revision: 1 }));
    let record = InstanceRecord { accelerators: ["GPU-b".to_owned()].into(), port: 9, ..InstanceRecord::default() };
    let observed = ObservedInstance { is_running: true, record };
    let instances = BTreeMap::from([("a".to_owned(), observed)]);
    assert_eq!(followed, Ok(Answer::Instances { revision: 1, instances }));
    assert_eq!(create().await, Ok(Answer::InstanceExists));
    assert_eq!(delete().await, Ok(Answer::InstanceDeleted { revision: 2 }));
    assert_eq!(delete().await, Ok(Answer::InstanceDeleted { revision: 0 }));
    assert_eq!(perform(Request::Instances { after: Some(7) }).await, empty(2), "the revision is not available");
    running.end().await;
}
