//! `ostler up` that was killed, and started again on the same folder.

use std::collections::BTreeSet;
use std::path::Path;

use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, ApiResource, DeleteParams, DynamicObject, Patch, PatchParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::core::GroupVersionKind;
use kube::runtime::wait::await_condition;
use rustix::process::Signal;
use serde_json::json;

use crate::session::{Folder, Session};

/// A container that is a process of this machine, and starts another one, and says so. Kubernetes makes one dollar of two.
fn manifest(started: &Path) -> String {
    let file = started.display();
    format!(
        "apiVersion: v1\nkind: Pod\nmetadata: {{name: tool, namespace: default}}\nspec:\n  containers:\n  - name: main\n    image: tool\n    command: [sh, -c, 'sleep 100000 & echo $$$$ > {file}; exec sleep 100000']\n    readinessProbe: {{exec: {{command: [test, -s, {file}]}}, periodSeconds: 1}}\n"
    )
}

#[tokio::test]
async fn after_a_kill_the_pods_run_again_and_no_process_is_left() {
    let folder = Folder::new();
    let data = folder.0.display().to_string();
    let started = folder.0.join("started");
    let (config, pod) =
        (folder.file("config.yaml", "images: {tool: {}}\n"), folder.file("pod.yaml", &manifest(&started)));
    let args = ["--nodes", "this", "--config", &config];

    let session = Session::start_on(&data, "127.0.0.1:0", &[args.as_slice(), &["-f", &pod]].concat());
    let (api, saved) = (session.api.clone(), folder.0.join("saved"));
    std::fs::copy(&session.kubeconfig, &saved).unwrap();
    let first = ready(&saved, 0).await;
    let group = std::fs::read_to_string(&started).unwrap().trim().to_owned();
    let processes = members(&group);
    assert_eq!(processes.len(), 2);
    session.end(Signal::KILL);
    assert_eq!(members(&group), processes, "a kill leaves them");
    std::fs::remove_file(&started).unwrap();

    // The kubeconfig that was saved is good for the next one, wherever that listens: the port may be another's by now.
    let session = Session::start_on(&data, "127.0.0.1:0", &args);
    std::fs::write(&saved, std::fs::read_to_string(&saved).unwrap().replace(&api, &session.api)).unwrap();
    let second = ready(&saved, 1).await;
    assert!(members(&group).is_disjoint(&processes));
    assert_eq!(second.metadata.uid, first.metadata.uid);
    let last = &second.status.unwrap().container_statuses.unwrap()[0].last_state.clone().unwrap().terminated.unwrap();
    assert_eq!((last.exit_code, last.reason.as_deref()), (255, Some("Unknown")));

    assert_eq!(session.end(Signal::TERM).1, Some(0));
}

/// Shipped objects are brought up to date at every start, but for what somebody set in them.
#[tokio::test]
async fn what_was_edited_in_the_catalogue_stays_over_a_restart() {
    let folder = Folder::new();
    let data = folder.0.display().to_string();
    let class = "nvidia-l4";
    let session = Session::start_on(&data, "127.0.0.1:0", &[]);
    let api = classes(Path::new(&session.kubeconfig)).await;
    let shipped = api.get(class).await.unwrap();
    let edit = json!({"metadata": {"labels": {"mine": "yes"}}, "spec": {"vendor": "other"}});
    let edited = api.patch(class, &PatchParams::default(), &Patch::Merge(edit)).await.unwrap();
    api.delete("nvidia-t4", &DeleteParams::default()).await.unwrap();
    assert_eq!(session.end(Signal::TERM).1, Some(0));

    let session = Session::start_on(&data, "127.0.0.1:0", &[]);
    let api = classes(Path::new(&session.kubeconfig)).await;
    let found = api.get(class).await.unwrap();
    assert_eq!((&found.metadata.labels, &found.data["spec"]), (&edited.metadata.labels, &edited.data["spec"]));
    api.get("nvidia-t4").await.expect("what was deleted is shipped again");

    // Without what was changed in it, it is the program's again.
    api.delete(class, &DeleteParams::default()).await.unwrap();
    assert_eq!(session.end(Signal::TERM).1, Some(0));
    let session = Session::start_on(&data, "127.0.0.1:0", &[]);
    let found = classes(Path::new(&session.kubeconfig)).await.get(class).await.unwrap();
    assert_eq!((&found.metadata.labels, &found.data["spec"]), (&shipped.metadata.labels, &shipped.data["spec"]));
}

async fn classes(kubeconfig: &Path) -> Api<DynamicObject> {
    let kind = GroupVersionKind::gvk("ome.io", "v1beta1", "AcceleratorClass");
    Api::all_with(client(kubeconfig).await, &ApiResource::from_gvk_with_plural(&kind, "acceleratorclasses"))
}

async fn client(kubeconfig: &Path) -> kube::Client {
    let file = Kubeconfig::read_from(kubeconfig).unwrap();
    let mut config = kube::Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await.unwrap();
    config.proxy_url = None;
    rustls::crypto::ring::default_provider().install_default().ok();
    kube::Client::try_from(config).unwrap()
}

/// The Pod, once its container is ready after so many restarts.
async fn ready(kubeconfig: &Path, restarts: i32) -> Pod {
    let api: Api<Pod> = Api::default_namespaced(client(kubeconfig).await);
    let is_ready = move |pod: Option<&Pod>| {
        let all = pod.and_then(|pod| pod.status.as_ref()?.container_statuses.as_ref());
        all.is_some_and(|all| all[0].ready && all[0].restart_count == restarts)
    };
    await_condition(api, "tool", is_ready).await.unwrap().unwrap()
}

/// The processes of a group that run: number and start, since numbers come round again; see proc(5).
fn members(group: &str) -> BTreeSet<(String, String)> {
    let entries = std::fs::read_dir("/proc").unwrap().flatten();
    let stats = entries.filter_map(|entry| std::fs::read_to_string(entry.path().join("stat")).ok());
    let member = |stat: String| {
        let (head, rest) = stat.rsplit_once(')')?;
        let fields: Vec<&str> = rest.split_whitespace().collect();
        let number = head.split_whitespace().next()?;
        let runs = fields[2] == group && !matches!(fields[0], "Z" | "X");
        runs.then(|| (number.to_owned(), fields[19].to_owned()))
    };
    stats.filter_map(member).collect()
}
