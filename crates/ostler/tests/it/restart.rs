//! Restarts of `ostler up` with the same data directory.

use std::collections::BTreeSet;
use std::path::Path;

use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{Api, ApiResource, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::core::GroupVersionKind;
use kube::runtime::wait::await_condition;
use rustix::process::Signal;
use serde_json::json;

use crate::session::{Session, TempDirectory};

/// Returns a Pod whose container runs as a process of this host, starts a child process, and writes its process group to
/// `pid_file`. Kubernetes expands `$$` to `$`.
fn manifest(pid_file: &Path) -> String {
    let file = pid_file.display();
    format!(
        "apiVersion: v1\nkind: Pod\nmetadata: {{name: tool, namespace: default}}\nspec:\n  containers:\n  - name: main\n    image: tool\n    command: [sh, -c, 'sleep 100000 & echo $$$$ > {file}; exec sleep 100000']\n    readinessProbe: {{exec: {{command: [test, -s, {file}]}}, periodSeconds: 1}}\n"
    )
}

#[tokio::test]
async fn restart_after_sigkill_restarts_pods() {
    let directory = TempDirectory::new();
    let data = directory.0.display().to_string();
    let pid_file = directory.0.join("pid");
    let (config, pod) =
        (directory.file("config.yaml", "images: {tool: {}}\n"), directory.file("pod.yaml", &manifest(&pid_file)));
    let args = ["--nodes", "this", "--config", &config];

    let session = Session::start_with_data_dir(&data, "127.0.0.1:0", &[args.as_slice(), &["-f", &pod]].concat());
    let (api, saved_kubeconfig) = (session.api.clone(), directory.0.join("saved"));
    std::fs::copy(&session.kubeconfig, &saved_kubeconfig).unwrap();
    let initial_pod = wait_until_ready(&saved_kubeconfig, 0).await;
    let process_group = std::fs::read_to_string(&pid_file).unwrap().trim().to_owned();
    let processes = processes_of_group(&process_group);
    assert_eq!(processes.len(), 2);
    session.stop(Signal::KILL);
    assert_eq!(processes_of_group(&process_group), processes, "SIGKILL does not stop the child processes");
    std::fs::remove_file(&pid_file).unwrap();

    // The saved kubeconfig remains valid except for the port.
    let session = Session::start_with_data_dir(&data, "127.0.0.1:0", &args);
    std::fs::write(&saved_kubeconfig, std::fs::read_to_string(&saved_kubeconfig).unwrap().replace(&api, &session.api))
        .unwrap();
    let restarted_pod = wait_until_ready(&saved_kubeconfig, 1).await;
    assert!(processes_of_group(&process_group).is_disjoint(&processes));
    assert_eq!(restarted_pod.metadata.uid, initial_pod.metadata.uid);
    let termination =
        &restarted_pod.status.unwrap().container_statuses.unwrap()[0].last_state.clone().unwrap().terminated.unwrap();
    assert_eq!((termination.exit_code, termination.reason.as_deref()), (255, Some("Unknown")));

    assert_eq!(session.stop(Signal::TERM).1, Some(0));
}

/// Containers that run as processes have another working directory, so their volumes must have absolute paths.
#[test]
fn relative_data_directory_becomes_absolute() {
    let session = Session::start_with_relative_data_dir("data");
    assert_eq!(Path::new(&session.kubeconfig), session.directory.0.join("data/kubeconfig"));
}

/// Each start updates the objects of the catalog, except those that a user has edited.
#[tokio::test]
async fn restart_retains_edited_catalog_objects() {
    let directory = TempDirectory::new();
    let data = directory.0.display().to_string();
    let class = "nvidia-l4";
    let session = Session::start_with_data_dir(&data, "127.0.0.1:0", &[]);
    let api = classes(Path::new(&session.kubeconfig)).await;
    let shipped = api.get(class).await.unwrap();
    let edit = json!({"metadata": {"labels": {"mine": "yes"}}, "spec": {"vendor": "other"}});
    let edited_class = api.patch(class, &PatchParams::default(), &Patch::Merge(edit)).await.unwrap();
    api.delete("nvidia-t4", &DeleteParams::default()).await.unwrap();
    assert_eq!(session.stop(Signal::TERM).1, Some(0));

    let session = Session::start_with_data_dir(&data, "127.0.0.1:0", &[]);
    let api = classes(Path::new(&session.kubeconfig)).await;
    let stored = api.get(class).await.unwrap();
    assert_eq!(
        (&stored.metadata.labels, &stored.data["spec"]),
        (&edited_class.metadata.labels, &edited_class.data["spec"])
    );
    api.get("nvidia-t4").await.expect("the deleted object is created again");

    // If the edited object is deleted, the next start creates the shipped object again.
    api.delete(class, &DeleteParams::default()).await.unwrap();
    assert_eq!(session.stop(Signal::TERM).1, Some(0));
    let session = Session::start_with_data_dir(&data, "127.0.0.1:0", &[]);
    let stored = classes(Path::new(&session.kubeconfig)).await.get(class).await.unwrap();
    assert_eq!((&stored.metadata.labels, &stored.data["spec"]), (&shipped.metadata.labels, &shipped.data["spec"]));
}

/// A start neither completes a user's class with the name of a shipped one nor deletes a user's copy of a simulated node.
#[tokio::test]
async fn restart_retains_objects_of_users() {
    let directory = TempDirectory::new();
    let data = directory.0.display().to_string();
    let session = Session::start_with_data_dir(&data, "127.0.0.1:0", &["--nodes", "8×H100"]);
    let api = classes(Path::new(&session.kubeconfig)).await;
    api.delete("nvidia-l4", &DeleteParams::default()).await.unwrap();
    let class = json!({"apiVersion": "ome.io/v1beta1", "kind": "AcceleratorClass", "metadata": {"name": "nvidia-l4"},
        "spec": {"discovery": {"nodeSelector": {"mine": "yes"}}, "capabilities": {}}});
    let class = api.create(&PostParams::default(), &serde_json::from_value(class).unwrap()).await.unwrap();
    let nodes: Api<Node> = Api::all(client(Path::new(&session.kubeconfig)).await);
    let simulated = nodes.list(&ListParams::default()).await.unwrap().items.remove(0);
    let mut copy =
        Node { metadata: ObjectMeta { name: Some("mine".to_owned()), ..ObjectMeta::default() }, ..Node::default() };
    copy.metadata.annotations.clone_from(&simulated.metadata.annotations);
    nodes.create(&PostParams::default(), &copy).await.unwrap();
    assert_eq!(session.stop(Signal::TERM).1, Some(0));

    let session = Session::start_with_data_dir(&data, "127.0.0.1:0", &["--nodes", "8×A100"]);
    let stored = classes(Path::new(&session.kubeconfig)).await.get("nvidia-l4").await.unwrap();
    assert_eq!((&stored.metadata.uid, &stored.data["spec"]), (&class.metadata.uid, &class.data["spec"]));
    let nodes: Api<Node> = Api::all(client(Path::new(&session.kubeconfig)).await);
    let names: BTreeSet<String> =
        nodes.list(&ListParams::default()).await.unwrap().into_iter().filter_map(|node| node.metadata.name).collect();
    assert!(names.contains("mine") && !names.contains(&simulated.metadata.name.unwrap()), "{names:?}");
}

/// A start without `--nodes` retains the nodes of the data directory, and the node of this host remains this host.
#[tokio::test]
async fn restart_retains_nodes() {
    let directory = TempDirectory::new();
    let data = directory.0.display().to_string();
    async fn nodes(session: &Session) -> Vec<(Option<String>, Option<String>)> {
        let nodes: Api<Node> = Api::all(client(Path::new(&session.kubeconfig)).await);
        let nodes = nodes.list(&ListParams::default()).await.unwrap();
        nodes.into_iter().map(|node| (node.metadata.name, node.metadata.uid)).collect()
    }
    let session = Session::start_with_data_dir(&data, "127.0.0.1:0", &["--nodes", "this, big=8×H100 ×2"]);
    let before = nodes(&session).await;
    assert_eq!(before.len(), 3);
    assert_eq!(session.stop(Signal::TERM).1, Some(0));
    let session = Session::start_with_data_dir(&data, "127.0.0.1:0", &[]);
    assert_eq!(nodes(&session).await, before);
}

/// A start installs missing definitions, and neither replaces a definition of a user nor reverts a user's edit.
#[tokio::test]
async fn restart_retains_definitions_of_users() {
    let directory = TempDirectory::new();
    let data = directory.0.display().to_string();
    let (edited, replaced, deleted) =
        ("basemodels.ome.io", "podgroups.scheduling.volcano.sh", "leaderworkersets.leaderworkerset.x-k8s.io");
    let session = Session::start_with_data_dir(&data, "127.0.0.1:0", &[]);
    let api: Api<CustomResourceDefinition> = Api::all(client(Path::new(&session.kubeconfig)).await);
    let versions = |definition: &CustomResourceDefinition| json!(definition.spec.versions);
    let mut definition = api.get(edited).await.unwrap();
    definition.spec.versions[0].additional_printer_columns = None;
    let edited_versions = versions(&api.replace(edited, &PostParams::default(), &definition).await.unwrap());
    let mut definition = api.get(replaced).await.unwrap();
    for name in [replaced, deleted] {
        api.delete(name, &DeleteParams::default()).await.unwrap();
        await_condition(api.clone(), name, |object: Option<&CustomResourceDefinition>| object.is_none()).await.unwrap();
    }
    definition.metadata = ObjectMeta { name: Some(replaced.to_owned()), ..ObjectMeta::default() };
    definition.spec.names.short_names = Some(vec!["mine".to_owned()]);
    let user_definition = api.create(&PostParams::default(), &definition).await.unwrap();
    assert_eq!(session.stop(Signal::TERM).1, Some(0));

    let session = Session::start_with_data_dir(&data, "127.0.0.1:0", &[]);
    let api: Api<CustomResourceDefinition> = Api::all(client(Path::new(&session.kubeconfig)).await);
    assert_eq!(versions(&api.get(edited).await.unwrap()), edited_versions);
    let stored = api.get(replaced).await.unwrap();
    assert_eq!((&stored.metadata.uid, &stored.spec), (&user_definition.metadata.uid, &user_definition.spec));
    api.get(deleted).await.expect("the deleted definition is installed again");
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

/// Waits until the container of the Pod is ready after `restarts` restarts.
async fn wait_until_ready(kubeconfig: &Path, restarts: i32) -> Pod {
    let api: Api<Pod> = Api::default_namespaced(client(kubeconfig).await);
    let is_ready = move |pod: Option<&Pod>| {
        let statuses = pod.and_then(|pod| pod.status.as_ref()?.container_statuses.as_ref());
        statuses.is_some_and(|statuses| statuses[0].ready && statuses[0].restart_count == restarts)
    };
    await_condition(api, "tool", is_ready).await.unwrap().unwrap()
}

/// Returns the running processes of a group, by process id and start time, since ids are reused; see proc(5).
fn processes_of_group(group: &str) -> BTreeSet<(String, String)> {
    let entries = std::fs::read_dir("/proc").unwrap().flatten();
    let stat_files = entries.filter_map(|entry| std::fs::read_to_string(entry.path().join("stat")).ok());
    let process = |stat: String| {
        let (head, rest) = stat.rsplit_once(')')?;
        let fields: Vec<&str> = rest.split_whitespace().collect();
        let pid = head.split_whitespace().next()?;
        let is_member = fields[2] == group && !matches!(fields[0], "Z" | "X");
        is_member.then(|| (pid.to_owned(), fields[19].to_owned()))
    };
    stat_files.filter_map(process).collect()
}
