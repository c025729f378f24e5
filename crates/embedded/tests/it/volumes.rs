//! Tests of volumes, lifecycle hooks and termination messages with host processes.

#![allow(clippy::unwrap_used, clippy::panic)] // clippy exempts test functions but not test helpers

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use embedded::ports::Ports;
use embedded::{Cluster, DEFAULT_HISTORY_SIZE, NodeDirectories, ProcessRuntime, Server, Store};
use serde_json::{Value, json};
use tempfile::TempDir;

/// Cluster that runs containers as host processes.
struct VolumeTestCluster {
    cluster: Cluster,
    directory: PathBuf,
    _temporary: TempDir,
}

/// Time limit of a condition, sufficient for slow machines.
const TIMEOUT: Duration = Duration::from_secs(300);

impl VolumeTestCluster {
    fn new() -> Self {
        let temporary = tempfile::tempdir().unwrap();
        let directory = temporary.path().to_owned();
        let ports = Ports { runtime: Arc::new(ProcessRuntime::default()), ..crate::ports() };
        let node = json!({"metadata": {"name": "here"}, "status": {"allocatable": {"cpu": "4", "memory": "8Gi"}}});
        let directories = NodeDirectories {
            logs: Some(directory.join("logs")),
            pods: Some(directory.join("pods")),
            volumes: Some(directory.join("volumes")),
        };
        Self {
            cluster: Cluster::start_with_store(Store::new(DEFAULT_HISTORY_SIZE), ports, vec![node], directories)
                .unwrap(),
            directory,
            _temporary: temporary,
        }
    }

    fn server(&self) -> &Server {
        self.cluster.server()
    }

    /// Creates a Pod with restart policy `Never`.
    fn pod(&self, name: &str, spec: Value) {
        let mut spec = spec;
        spec["restartPolicy"] = json!("Never");
        let metadata = json!({"name": name, "namespace": "default", "labels": {"team": "a"}});
        self.server().create("pods", json!({"metadata": metadata, "spec": spec})).unwrap();
    }

    fn config_map(&self, level: &str) -> Value {
        json!({"metadata": {"name": "settings", "namespace": "default"}, "data": {"level": level}})
    }

    async fn wait_for(&self, description: &str, condition: impl Fn(&Server) -> bool) {
        let mut changes = self.server().subscribe();
        let waiting = async {
            while !condition(self.server()) {
                let _ = changes.next().await;
            }
        };
        assert!(
            tokio::time::timeout(TIMEOUT, waiting).await.is_ok(),
            "timed out waiting for: {description}\n{:?}",
            self.server().list("pods")
        );
    }

    async fn wait_for_phase(&self, pod: &str, phase: &str) {
        self.wait_for(phase, |server| server.get("pods", "default", pod).unwrap()["status"]["phase"] == phase).await;
    }

    /// Returns the log of the Pod's only container.
    fn log(&self, pod: &str) -> String {
        let uid = self.server().get("pods", "default", pod).unwrap()["metadata"]["uid"].as_str().unwrap().to_owned();
        let directory = self.directory.join("logs").join(format!("default_{pod}_{uid}")).join("c");
        let mut files: Vec<_> = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()).collect();
        files.sort();
        let lines = files.iter().map(|file| std::fs::read_to_string(file).unwrap()).collect::<String>();
        lines.lines().filter_map(|line| line.splitn(4, ' ').nth(3)).collect::<Vec<_>>().join("\n")
    }

    async fn stop(self) {
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
async fn config_map_volume_is_awaited_and_updated() {
    let cluster = VolumeTestCluster::new();
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
    cluster.pod("p", spec);
    let is_mount_event = |server: &Server, reason: &str| {
        let found = server.list("events").into_iter().find(|event| event["reason"] == reason);
        found.map(|event| event["message"].as_str().unwrap().to_owned())
    };
    cluster.wait_for("a FailedMount event", |server| is_mount_event(server, "FailedMount").is_some()).await;
    assert_eq!(
        is_mount_event(cluster.server(), "FailedMount").unwrap(),
        r#"MountVolume.SetUp failed for volume "settings" : configmap "settings" not found"#
    );
    let created = cluster.server().create("configmaps", cluster.config_map("high")).unwrap();
    cluster.wait_for("the container has read the first version", |server| is_ready(server, "p")).await;
    let mut updated = created.as_ref().clone();
    updated["data"]["level"] = json!("low");
    cluster.server().update("configmaps", updated).unwrap();
    cluster.wait_for_phase("p", "Succeeded").await;
    assert_eq!(cluster.log("p"), "high\nlowteam=\"a\"");
    assert!(is_mount_event(cluster.server(), "MountRewritten").is_some());
    cluster.stop().await;
}

#[tokio::test]
async fn empty_dir_is_shared_and_removed_with_pod() {
    let cluster = VolumeTestCluster::new();
    let mounts = || json!([{"name": "scratch", "mountPath": "/work/shared", "subPath": "deep"}]);
    let mut first = shell("echo made > /work/shared/file", mounts());
    first["name"] = json!("first");
    let mut main = shell("exec sleep 1000", mounts());
    main["readinessProbe"] = json!({"exec": {"command": ["grep", "made", "/work/shared/file"]}});
    cluster.pod(
        "p",
        json!({"volumes": [{"name": "scratch", "emptyDir": {}}], "initContainers": [first], "containers": [main]}),
    );
    cluster.wait_for("the main container finds the file of the init container", |server| is_ready(server, "p")).await;
    let pods = cluster.directory.join("pods");
    assert_eq!(std::fs::read_dir(&pods).unwrap().count(), 1);
    cluster.server().delete("pods", "default", "p", None).unwrap();
    cluster.wait_for("the Pod is deleted", |server| server.list("pods").is_empty()).await;
    assert_eq!(std::fs::read_dir(&pods).unwrap().count(), 0);
    cluster.stop().await;
}

#[tokio::test]
async fn runs_hooks_and_stops_sidecars_last() {
    let cluster = VolumeTestCluster::new();
    let file = cluster.directory.join("order");
    let append = |word: &str| format!("echo {word} >> {}", file.display());
    let exec = |word: &str| json!({"exec": {"command": ["sh", "-c", append(word)]}});
    // The probe waits for the trap: a container that is stopped before it sets the trap exits without writing to the
    // file.
    let wait_for_signal = |word: &str| {
        let ready = cluster.directory.join(word).display().to_string();
        let script = format!("trap '{}; exit 0' TERM; touch {ready}; while true; do sleep 0.02; done", append(word));
        (script, json!({"exec": {"command": ["test", "-e", ready]}, "periodSeconds": 1, "failureThreshold": 1000}))
    };
    let (script, readiness_probe) = wait_for_signal("main");
    let mut main = shell(&script, json!([]));
    main["readinessProbe"] = readiness_probe;
    main["lifecycle"] = json!({"postStart": exec("started"), "preStop": exec("stopping")});
    let (script, startup_probe) = wait_for_signal("sidecar");
    let mut sidecar = shell(&script, json!([]));
    sidecar["startupProbe"] = startup_probe;
    (sidecar["name"], sidecar["restartPolicy"]) = (json!("s"), json!("Always"));
    let spec = json!({"terminationGracePeriodSeconds": 600, "initContainers": [sidecar], "containers": [main]});
    cluster.pod("p", spec);
    cluster.wait_for("the Pod is ready", |server| is_ready(server, "p")).await;
    cluster.server().delete("pods", "default", "p", None).unwrap();
    cluster.wait_for("the Pod is deleted", |server| server.list("pods").is_empty()).await;
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "started\nstopping\nmain\nsidecar\n");
    cluster.stop().await;
}

#[tokio::test]
async fn unsupported_mounts_are_reported() {
    let cluster = VolumeTestCluster::new();
    cluster.server().create("configmaps", cluster.config_map("high")).unwrap();
    let spec = json!({
        "volumes": [{"name": "settings", "configMap": {"name": "settings"}}],
        "containers": [shell("true", json!([{"name": "settings", "mountPath": "/etc/app"}]))],
    });
    cluster.pod("p", spec);
    cluster.pod(
        "q",
        json!({"volumes": [{"name": "v", "csi": {"driver": "d"}}],
                          "containers": [shell("true", json!([{"name": "v", "mountPath": "/data"}]))]}),
    );
    let messages = |server: &Server| -> Vec<String> {
        let is_mount_event = |event: &Value| matches!(event["reason"].as_str(), Some("MountHidden" | "FailedMount"));
        let events = server.list("events").into_iter().filter(|event| is_mount_event(event));
        events.map(|event| event["message"].as_str().unwrap().to_owned()).collect()
    };
    cluster.wait_for("events for both Pods", |server| messages(server).len() == 2).await;
    let all = messages(cluster.server()).join("\n");
    assert!(all.contains("Container c cannot access its mount /etc/app"), "{all}");
    assert!(all.contains("volume \"v\": volume source csi is not supported"), "{all}");
    cluster.stop().await;
}

#[tokio::test]
async fn volume_claim_outlives_pods_and_is_deleted_with_claim() {
    let cluster = VolumeTestCluster::new();
    let claim = json!({
        "metadata": {"name": "weights", "namespace": "default"},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
    });
    let pod = |name: &str, script: &str| {
        let spec = json!({
            "volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "weights"}}],
            "containers": [shell(script, json!([{"name": "v", "mountPath": "/models", "subPath": "llama"}]))],
        });
        cluster.pod(name, spec);
    };
    let scheduling_message = |server: &Server| {
        let pod = server.get("pods", "default", "writer").unwrap();
        let conditions = pod["status"]["conditions"].as_array().cloned().unwrap_or_default();
        conditions.iter().find_map(|condition| Some(condition["message"].as_str()?.to_owned()))
    };
    pod("writer", "echo weights > /models/a");
    let message = "0/1 nodes are available: persistentvolumeclaim \"weights\" not found. not found";
    cluster
        .wait_for("an unschedulable condition", |server| scheduling_message(server).as_deref() == Some(message))
        .await;
    cluster.server().create("persistentvolumeclaims", claim).unwrap();
    cluster.wait_for_phase("writer", "Succeeded").await;
    let bound = cluster.server().get("persistentvolumeclaims", "default", "weights").unwrap();
    assert_eq!(
        (bound["status"]["phase"].as_str(), &bound["spec"]["storageClassName"]),
        (Some("Bound"), &json!("standard"))
    );
    let directory = cluster.directory.join("volumes").join(bound["spec"]["volumeName"].as_str().unwrap());
    assert_eq!(std::fs::read_to_string(directory.join("llama/a")).unwrap(), "weights\n");
    pod("reader", "cat /models/a");
    cluster.wait_for_phase("reader", "Succeeded").await;
    assert_eq!(cluster.log("reader"), "weights");
    cluster.server().delete("persistentvolumeclaims", "default", "weights", None).unwrap();
    cluster.wait_for("the volume is deleted", |server| server.list("persistentvolumes").is_empty()).await;
    let directory_removed = async {
        while directory.exists() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(TIMEOUT, directory_removed).await.expect("the directory was not removed");
    cluster.stop().await;
}

#[tokio::test]
async fn reports_termination_message() {
    let cluster = VolumeTestCluster::new();
    let mut container = shell("echo 'no such model' > /dev/termination-log; exit 3", json!([]));
    cluster.pod("p", json!({"containers": [container.clone()]}));
    cluster.wait_for_phase("p", "Failed").await;
    let message = |pod: &str| {
        let pod = cluster.server().get("pods", "default", pod).unwrap();
        pod["status"]["containerStatuses"][0]["state"]["terminated"]["message"].as_str().map(str::to_owned)
    };
    assert_eq!(message("p").as_deref(), Some("no such model\n"));
    container["terminationMessagePath"] = json!("/run/last");
    container["command"][2] = json!("echo again > /run/last");
    cluster.pod("custom-path", json!({"containers": [container]}));
    cluster.wait_for_phase("custom-path", "Succeeded").await;
    assert_eq!(message("custom-path").as_deref(), Some("again\n"));
    cluster.stop().await;
}

#[tokio::test]
async fn active_deadline_terminates_pod() {
    let cluster = VolumeTestCluster::new();
    let containers = [shell("exec sleep 1000", json!([]))];
    // On a stalled host the deadline may expire before the container starts; retry with a longer one.
    for seconds in [1, 5, 25, 125] {
        let name = format!("p{seconds}");
        cluster.pod(&name, json!({"activeDeadlineSeconds": seconds, "containers": containers}));
        cluster.wait_for_phase(&name, "Failed").await;
        let pod = cluster.server().get("pods", "default", &name).unwrap();
        assert_eq!(pod["status"]["reason"], "DeadlineExceeded");
        assert_eq!(pod["status"]["message"], "Pod was active on the node longer than the specified deadline");
        let terminated = &pod["status"]["containerStatuses"][0]["state"]["terminated"];
        if seconds == 125 || terminated.is_object() {
            assert_eq!(terminated["exitCode"], 143);
            break;
        }
    }
    cluster.stop().await;
}
