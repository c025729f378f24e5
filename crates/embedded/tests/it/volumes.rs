//! Volumes and hooks of real processes.

#![allow(clippy::unwrap_used, clippy::panic)] // helpers of tests are not marked as tests

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use embedded::Server;
use embedded::cluster::Cluster;
use embedded::node::Folders;
use embedded::node::process::ProcessRunner;
use embedded::ports::Ports;
use embedded::store::{HISTORY, Store};
use serde_json::{Value, json};
use tempfile::TempDir;

struct World {
    cluster: Cluster,
    folder: PathBuf,
    _kept: TempDir,
}

/// What comes soon is waited for as long as this, however busy the machine is.
const PATIENCE: Duration = Duration::from_secs(300);

impl World {
    fn new() -> Self {
        let kept = tempfile::tempdir().unwrap();
        let folder = kept.path().to_owned();
        let ports = Ports { runner: Arc::new(ProcessRunner::default()), ..crate::ports() };
        let node = json!({"metadata": {"name": "here"}, "status": {"allocatable": {"cpu": "4", "memory": "8Gi"}}});
        let folders = Folders {
            logs: Some(folder.join("logs")),
            pods: Some(folder.join("pods")),
            volumes: Some(folder.join("volumes")),
        };
        Self { cluster: Cluster::start_on(Store::new(HISTORY), ports, vec![node], folders), folder, _kept: kept }
    }

    fn server(&self) -> &Server {
        self.cluster.server()
    }

    /// A Pod that runs once.
    fn pod(&self, name: &str, spec: Value) {
        let mut spec = spec;
        spec["restartPolicy"] = json!("Never");
        let metadata = json!({"name": name, "namespace": "default", "labels": {"team": "a"}});
        self.server().create("pods", json!({"metadata": metadata, "spec": spec})).unwrap();
    }

    fn config_map(&self, level: &str) -> Value {
        json!({"metadata": {"name": "settings", "namespace": "default"}, "data": {"level": level}})
    }

    async fn until(&self, what: &str, holds: impl Fn(&Server) -> bool) {
        let mut changes = self.server().subscribe();
        let waiting = async {
            while !holds(self.server()) {
                let _ = changes.next().await;
            }
        };
        assert!(
            tokio::time::timeout(PATIENCE, waiting).await.is_ok(),
            "never: {what}\n{:?}",
            self.server().list("pods")
        );
    }

    async fn until_phase(&self, pod: &str, phase: &str) {
        self.until(phase, |server| server.get("pods", "default", pod).unwrap()["status"]["phase"] == phase).await;
    }

    /// What the Pod's only container wrote.
    fn log(&self, pod: &str) -> String {
        let uid = self.server().get("pods", "default", pod).unwrap()["metadata"]["uid"].as_str().unwrap().to_owned();
        let folder = self.folder.join("logs").join(format!("default_{pod}_{uid}")).join("c");
        let mut files: Vec<_> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
        files.sort();
        let lines = files.iter().map(|file| std::fs::read_to_string(file).unwrap()).collect::<String>();
        lines.lines().filter_map(|line| line.splitn(4, ' ').nth(3)).collect::<Vec<_>>().join("\n")
    }

    async fn end(self) {
        self.cluster.stop().await;
    }
}

fn shell(script: &str, mounts: Value) -> Value {
    json!({"name": "c", "image": "x", "command": ["sh", "-c", script], "volumeMounts": mounts})
}

fn is_ready(server: &Server, pod: &str) -> bool {
    server.get("pods", "default", pod).unwrap()["status"]["containerStatuses"][0]["ready"] == true
}

#[tokio::test]
async fn a_pod_waits_for_its_config_map_and_sees_its_updates() {
    let world = World::new();
    let script = "cat /etc/app/level; echo; touch /seen/it; until grep -q low /etc/app/level; do sleep 0.02; done; cat /etc/app/level /info/labels";
    let mounts = json!([
        {"name": "settings", "mountPath": "/etc/app"}, {"name": "info", "mountPath": "/info"}, {"name": "seen", "mountPath": "/seen"},
    ]);
    let mut container = shell(script, mounts);
    container["readinessProbe"] = json!({"exec": {"command": ["test", "-e", "/seen/it"]}});
    let spec = json!({
        "volumes": [
            {"name": "settings", "configMap": {"name": "settings"}},
            {"name": "info", "downwardAPI": {"items": [{"path": "labels", "fieldRef": {"fieldPath": "metadata.labels"}}]}},
            {"name": "seen", "emptyDir": {}},
        ],
        "containers": [container],
    });
    world.pod("p", spec);
    let told = |server: &Server, reason: &str| {
        let found = server.list("events").into_iter().find(|event| event["reason"] == reason);
        found.map(|event| event["message"].as_str().unwrap().to_owned())
    };
    world.until("why it waits", |server| told(server, "FailedMount").is_some()).await;
    assert_eq!(
        told(world.server(), "FailedMount").unwrap(),
        r#"MountVolume.SetUp failed for volume "settings" : configmap "settings" not found"#
    );
    let made = world.server().create("configmaps", world.config_map("high")).unwrap();
    world.until("it has read the first one", |server| is_ready(server, "p")).await;
    let mut updated = made.as_ref().clone();
    updated["data"]["level"] = json!("low");
    world.server().update("configmaps", updated).unwrap();
    world.until_phase("p", "Succeeded").await;
    assert_eq!(world.log("p"), "high\nlowteam=\"a\"");
    assert!(told(world.server(), "MountRewritten").is_some());
    world.end().await;
}

#[tokio::test]
async fn containers_share_a_scratch_folder_that_goes_with_the_pod() {
    let world = World::new();
    let mounts = || json!([{"name": "scratch", "mountPath": "/work/shared", "subPath": "deep"}]);
    let mut first = shell("echo made > /work/shared/file", mounts());
    first["name"] = json!("first");
    let mut main = shell("exec sleep 1000", mounts());
    main["readinessProbe"] = json!({"exec": {"command": ["grep", "made", "/work/shared/file"]}});
    world.pod(
        "p",
        json!({"volumes": [{"name": "scratch", "emptyDir": {}}], "initContainers": [first], "containers": [main]}),
    );
    world.until("the second sees the first one's file", |server| is_ready(server, "p")).await;
    let pods = world.folder.join("pods");
    assert_eq!(std::fs::read_dir(&pods).unwrap().count(), 1);
    world.server().delete("pods", "default", "p", None).unwrap();
    world.until("it is gone", |server| server.list("pods").is_empty()).await;
    assert_eq!(std::fs::read_dir(&pods).unwrap().count(), 0);
    world.end().await;
}

#[tokio::test]
async fn hooks_run_around_a_container_and_sidecars_end_last() {
    let world = World::new();
    let file = world.folder.join("order");
    let note = |word: &str| format!("echo {word} >> {}", file.display());
    let exec = |word: &str| json!({"exec": {"command": ["sh", "-c", note(word)]}});
    // Whoever is asked to end before it knows what to do then just ends.
    let waits = |word: &str| {
        let ready = world.folder.join(word).display().to_string();
        let script = format!("trap '{}; exit 0' TERM; touch {ready}; while true; do sleep 0.02; done", note(word));
        (script, json!({"exec": {"command": ["test", "-e", ready]}, "periodSeconds": 1, "failureThreshold": 1000}))
    };
    let (script, is_ready_when) = waits("main");
    let mut main = shell(&script, json!([]));
    main["readinessProbe"] = is_ready_when;
    main["lifecycle"] = json!({"postStart": exec("started"), "preStop": exec("stopping")});
    let (script, has_started_when) = waits("sidecar");
    let mut sidecar = shell(&script, json!([]));
    sidecar["startupProbe"] = has_started_when;
    (sidecar["name"], sidecar["restartPolicy"]) = (json!("s"), json!("Always"));
    let spec = json!({"terminationGracePeriodSeconds": 600, "initContainers": [sidecar], "containers": [main]});
    world.pod("p", spec);
    world.until("it runs", |server| is_ready(server, "p")).await;
    world.server().delete("pods", "default", "p", None).unwrap();
    world.until("it is gone", |server| server.list("pods").is_empty()).await;
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "started\nstopping\nmain\nsidecar\n");
    world.end().await;
}

#[tokio::test]
async fn what_a_program_cannot_find_is_told() {
    let world = World::new();
    world.server().create("configmaps", world.config_map("high")).unwrap();
    let spec = json!({
        "volumes": [{"name": "settings", "configMap": {"name": "settings"}}],
        "containers": [shell("true", json!([{"name": "settings", "mountPath": "/etc/app"}]))],
    });
    world.pod("p", spec);
    world.pod(
        "q",
        json!({"volumes": [{"name": "v", "csi": {"driver": "d"}}],
                          "containers": [shell("true", json!([{"name": "v", "mountPath": "/data"}]))]}),
    );
    let messages = |server: &Server| -> Vec<String> {
        let told = |event: &Value| matches!(event["reason"].as_str(), Some("MountHidden" | "FailedMount"));
        let events = server.list("events").into_iter().filter(|event| told(event));
        events.map(|event| event["message"].as_str().unwrap().to_owned()).collect()
    };
    world.until("both are told", |server| messages(server).len() == 2).await;
    let all = messages(world.server()).join("\n");
    assert!(all.contains("container c does not see its mount /etc/app"), "{all}");
    assert!(all.contains("volume \"v\": csi is not available here"), "{all}");
    world.end().await;
}

#[tokio::test]
async fn a_claim_is_a_folder_that_outlives_its_pods_and_goes_with_the_claim() {
    let world = World::new();
    let claim = json!({
        "metadata": {"name": "weights", "namespace": "default"},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
    });
    let pod = |name: &str, script: &str| {
        let spec = json!({
            "volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "weights"}}],
            "containers": [shell(script, json!([{"name": "v", "mountPath": "/models", "subPath": "llama"}]))],
        });
        world.pod(name, spec);
    };
    let unscheduled = |server: &Server| {
        let pod = server.get("pods", "default", "writer").unwrap();
        let conditions = pod["status"]["conditions"].as_array().cloned().unwrap_or_default();
        conditions.iter().find_map(|condition| Some(condition["message"].as_str()?.to_owned()))
    };
    pod("writer", "echo weights > /models/a");
    let why = "0/1 nodes are available: persistentvolumeclaim \"weights\" not found. not found";
    world.until("why it waits", |server| unscheduled(server).as_deref() == Some(why)).await;
    world.server().create("persistentvolumeclaims", claim).unwrap();
    world.until_phase("writer", "Succeeded").await;
    let bound = world.server().get("persistentvolumeclaims", "default", "weights").unwrap();
    assert_eq!(
        (bound["status"]["phase"].as_str(), &bound["spec"]["storageClassName"]),
        (Some("Bound"), &json!("standard"))
    );
    let folder = world.folder.join("volumes").join(bound["spec"]["volumeName"].as_str().unwrap());
    assert_eq!(std::fs::read_to_string(folder.join("llama/a")).unwrap(), "weights\n");
    pod("reader", "cat /models/a");
    world.until_phase("reader", "Succeeded").await;
    assert_eq!(world.log("reader"), "weights");
    world.server().delete("persistentvolumeclaims", "default", "weights", None).unwrap();
    world.until("the volume is gone", |server| server.list("persistentvolumes").is_empty()).await;
    let gone = async {
        while folder.exists() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, gone).await.expect("the folder stays");
    world.end().await;
}

#[tokio::test]
async fn last_words_are_the_message_of_the_end() {
    let world = World::new();
    let mut container = shell("echo 'no such model' > /dev/termination-log; exit 3", json!([]));
    world.pod("p", json!({"containers": [container.clone()]}));
    world.until_phase("p", "Failed").await;
    let message = |pod: &str| {
        let pod = world.server().get("pods", "default", pod).unwrap();
        pod["status"]["containerStatuses"][0]["state"]["terminated"]["message"].as_str().map(str::to_owned)
    };
    assert_eq!(message("p").as_deref(), Some("no such model\n"));
    container["terminationMessagePath"] = json!("/run/last");
    container["command"][2] = json!("echo again > /run/last");
    world.pod("elsewhere", json!({"containers": [container]}));
    world.until_phase("elsewhere", "Succeeded").await;
    assert_eq!(message("elsewhere").as_deref(), Some("again\n"));
    world.end().await;
}

#[tokio::test]
async fn a_pod_has_its_time_and_no_more() {
    let world = World::new();
    let containers = [shell("exec sleep 1000", json!([]))];
    // On a machine that stands still its time is over before it has begun: then it gets more.
    for seconds in [1, 5, 25, 125] {
        let name = format!("p{seconds}");
        world.pod(&name, json!({"activeDeadlineSeconds": seconds, "containers": containers}));
        world.until_phase(&name, "Failed").await;
        let pod = world.server().get("pods", "default", &name).unwrap();
        assert_eq!(pod["status"]["reason"], "DeadlineExceeded");
        assert_eq!(pod["status"]["message"], "Pod was active on the node longer than the specified deadline");
        let ended = &pod["status"]["containerStatuses"][0]["state"]["terminated"];
        if seconds == 125 || ended.is_object() {
            assert_eq!(ended["exitCode"], 143);
            break;
        }
    }
    world.end().await;
}
