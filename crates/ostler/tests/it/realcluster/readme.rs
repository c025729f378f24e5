//! Runs the commands of `deploy/README.md` with kubectl: installation, the service of `README.md`, and removal.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use kube::api::{Api, DynamicObject, ListParams};
use kube::discovery::{ApiGroup, Discovery, verbs};
use realcluster::{Binaries, Process, Proxy};
use serde_json::{Value, json};

use super::test_cluster::{CLASSES, DEPLOYMENTS, OME, Objects, TestCluster, find_condition};
use crate::session::{TIMEOUT, TempDirectory, outcome};

const WEBHOOKS: (&str, &str) = ("validatingwebhookconfigurations.admissionregistration.k8s.io", "v1");
const FLAVORS: (&str, &str) = ("resourceflavors.kueue.x-k8s.io", "v1beta2");
const OPERATOR: &str = "ostler-operator";

/// A fenced block of a README: its language and its text.
struct Block {
    language: String,
    text: String,
}

/// A user who follows the README in a directory that contains only `deploy`.
struct Reader {
    test_cluster: TestCluster,
    directory: PathBuf,
    search_path: OsString,
    operator: Option<(Process, Proxy)>,
}

fn read_file(path: &str) -> String {
    std::fs::read_to_string(repository().join(path)).unwrap()
}

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// Returns the fenced blocks below `heading`, up to the next heading.
fn blocks(text: &str, heading: &str) -> Vec<Block> {
    let lines = text.lines().skip_while(|line| *line != heading).skip(1);
    let (mut blocks, mut open) = (Vec::new(), None::<Block>);
    for line in lines {
        match (line.strip_prefix("```"), open.take()) {
            (Some(language), None) => open = Some(Block { language: language.to_owned(), text: String::new() }),
            (Some(_), Some(block)) => blocks.push(block),
            (None, Some(block)) => open = Some(Block { text: format!("{}{line}\n", block.text), ..block }),
            (None, None) if line.starts_with('#') => break,
            (None, None) => {}
        }
    }
    assert!(!blocks.is_empty(), "no commands below {heading:?}");
    blocks
}

/// Returns the commands of a block without comments.
fn commands(block: &Block) -> Vec<String> {
    block.text.lines().map(|line| line.split(" #").next().unwrap_or_default().trim().to_owned()).collect()
}

/// Returns all commands below `heading` of `deploy/README.md`, by block.
fn deploy_commands(heading: &str) -> Vec<Vec<String>> {
    let blocks = blocks(&read_file("deploy/README.md"), heading);
    blocks.iter().filter(|block| block.language == "sh").map(commands).collect()
}

#[test]
fn readme_installs_like_deploy_readme() {
    let install = deploy_commands("## Install").concat();
    let summary: Vec<String> = commands(&blocks(&read_file("README.md"), "## Install on a cluster")[0]);
    assert!(summary[0].starts_with("cargo build"), "{summary:?}");
    assert!(read_file("deploy/README.md").contains(&format!("    {}\n", summary[1])), "the image: {summary:?}");
    let mut remaining = install.iter();
    for command in &summary[2..] {
        assert!(remaining.any(|other| other == command), "{command:?} is not part of, or out of order in {install:#?}");
    }
    let manifest = |path: &str, heading: &str| {
        let blocks = blocks(&read_file(path), heading);
        blocks.into_iter().find(|block| block.language == "yaml").unwrap().text
    };
    assert_eq!(manifest("README.md", "# ostler"), manifest("deploy/README.md", "## Install"));
}

/// `kubectl delete -f deploy/` deletes the namespace first, and then fails if the API server has already deleted the objects
/// in it. Whether it has is a race, so the commands are checked, too.
#[test]
fn removal_does_not_depend_on_the_time_of_deletion() {
    for heading in ["## Uninstall", "### An operator of some namespaces"] {
        for command in deploy_commands(heading).concat() {
            let is_namespace_last = || command.ends_with(" -f deploy/00-namespace.yaml");
            let deletes_namespace =
                format!("{command} ").contains("-f deploy/ ") || command.contains("00-namespace.yaml");
            assert!(
                !deletes_namespace || command.ends_with(" --ignore-not-found") || is_namespace_last(),
                "{command:?} deletes objects in a namespace after the namespace"
            );
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
// spec: GW-69
#[ignore = "needs a built control plane: cargo xtask test --with realcluster"]
async fn deploy_readme_is_followed_word_by_word() {
    let temp_directory = TempDirectory::new();
    let mut reader = Reader::start(temp_directory.0.clone()).await;
    let has_kueue = reader.install_kueue().await;
    let before = reader.objects().await.unwrap();

    reader.run_all(&deploy_commands("## Install")).await;
    reader.check_placement().await;
    let is_configured = |objects: &Objects| objects.contains_key("ostler-admission");
    reader.test_cluster.wait_for("the webhook", WEBHOOKS, "", is_configured).await;
    let [services_first, kueue] = deploy_commands("## Uninstall").try_into().unwrap();
    reader.run(&services_first[0]).await;
    if has_kueue {
        reader.delete_classes(&kueue).await;
    }
    reader.run_all(&[services_first[1..].to_vec()]).await;
    reader.check_that_nothing_is_left(&before).await;

    reader.run_all(&deploy_commands("## Restrict the operator to namespaces")).await;
    reader.run_all(&deploy_commands("## Install")[1..]).await;
    reader.check_placement().await;
    reader.run_all(&deploy_commands("### An operator of some namespaces")).await;
    reader.check_that_nothing_is_left(&before).await;
}

// === impl Reader ===

impl Reader {
    /// Starts a cluster, and writes the service of the README to `chat.yaml`.
    async fn start(directory: PathBuf) -> Self {
        let test_cluster = TestCluster::start(Binaries::find_all().unwrap(), directory.join("cluster")).await;
        let directory = directory.join("user");
        std::fs::create_dir(&directory).unwrap();
        std::os::unix::fs::symlink(repository().join("deploy"), directory.join("deploy")).unwrap();
        let manifests = blocks(&read_file("deploy/README.md"), "## Install");
        let service = manifests.iter().find(|block| block.language == "yaml").unwrap();
        std::fs::write(directory.join("chat.yaml"), &service.text).unwrap();
        let mut programs = vec![Path::new(env!("CARGO_BIN_EXE_ostler")).parent().unwrap().to_owned()];
        programs.extend(std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default()));
        Self { test_cluster, directory, search_path: std::env::join_paths(programs).unwrap(), operator: None }
    }

    /// Installs the ResourceFlavors of Kueue, if its source is available.
    async fn install_kueue(&self) -> bool {
        let Some(definition) = self.test_cluster.cluster.resource_flavor_definition().unwrap() else {
            eprintln!("         Kueue is skipped: no source");
            return false;
        };
        self.test_cluster.cluster.apply_definitions(&[definition]).await.unwrap();
        true
    }

    async fn run_all(&mut self, blocks: &[Vec<String>]) {
        for command in blocks.concat() {
            self.run(&command).await;
        }
    }

    /// Runs a command, which succeeds, and then what the cluster would run. Returns the output.
    async fn run(&mut self, command: &str) -> String {
        eprintln!("$ {command}");
        let mut process = Command::new("bash");
        process.args(["-euo", "pipefail", "-c", command]).current_dir(&self.directory);
        process.env("PATH", &self.search_path).env("KUBECONFIG", &self.test_cluster.cluster.kubeconfig);
        let output = tokio::task::spawn_blocking(move || process.output()).await.unwrap().unwrap();
        let (stdout, stderr, code) = outcome(&output);
        let lines: Vec<&str> = stdout.lines().collect();
        lines.iter().take(6).for_each(|line| eprintln!("  {line}"));
        if lines.len() > 6 {
            eprintln!("  … {} more lines", lines.len() - 6);
        }
        eprint!("{stderr}");
        assert_eq!(code, Some(0), "{command}: {stdout}{stderr}");
        self.run_deployed_operator().await;
        stdout
    }

    /// Runs the operator with the arguments and the ServiceAccount of its Deployment while the Deployment exists, because no
    /// kubelet runs containers.
    async fn run_deployed_operator(&mut self) {
        let deployments = self.test_cluster.api(DEPLOYMENTS, operator::DEFAULT_NAMESPACE);
        let deployment = deployments.get_opt(OPERATOR).await.unwrap();
        match (deployment, self.operator.take()) {
            (Some(deployment), None) => self.operator = Some(self.start_operator(&deployment.data).await),
            (None, Some((mut process, _proxy))) => drop(process.terminate().await.unwrap()),
            (_, operator) => self.operator = operator,
        }
    }

    async fn start_operator(&self, deployment: &Value) -> (Process, Proxy) {
        let cluster = &self.test_cluster.cluster;
        let account = cluster.service_account(operator::DEFAULT_NAMESPACE, OPERATOR).await.unwrap();
        let proxy = Proxy::start(account.client).await.unwrap();
        let kubeconfig = self.test_cluster.directory.join("operator.kubeconfig");
        std::fs::write(&kubeconfig, proxy.kubeconfig()).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_ostler"));
        for arg in deployment["spec"]["template"]["spec"]["containers"][0]["args"].as_array().unwrap() {
            match arg.as_str().unwrap().split_once('=') {
                Some((option @ ("--webhook" | "--metrics"), _)) => command.arg(format!("{option}=127.0.0.1:0")),
                // The API server cannot reach this host through the Service.
                Some(("--webhook-service", _)) => &mut command,
                _ => command.arg(arg.as_str().unwrap()),
            };
        }
        command.args(["--leader-elect-namespace", operator::DEFAULT_NAMESPACE, "--kubeconfig"]).arg(kubeconfig);
        command.env("OSTLER_LOG", "info");
        (Process::start("operator", &mut command, &cluster.log_directory()).unwrap(), proxy)
    }

    /// Checks that the operator selected a class for the service and that its engine runs.
    async fn check_placement(&mut self) {
        let service = self.test_cluster.get(OME, "default", "chat").await;
        assert_eq!(find_condition(&service, "Ready").unwrap()["status"], "True", "{service}");
        let description = self.run("kubectl describe inferenceservice.ome.io chat").await;
        assert!(description.contains("Nearest:") && description.lines().count() < 60, "{description}");
        let decision = &service["status"]["decision"];
        assert_eq!(decision["reason"], "Selected", "{service}");
        let selected = &service["status"]["components"]["engine"]["selectedAccelerator"];
        let class = selected["acceleratorClass"].as_str().unwrap();
        assert!(class.starts_with("nvidia-h100-80gb"), "{service}");
        let deployment = self.test_cluster.get(DEPLOYMENTS, "default", "chat-engine").await;
        assert_eq!(deployment["status"]["readyReplicas"], 1, "{deployment}");
    }

    /// Follows the steps for a cluster with Kueue: the flavor of a class is gone when the user checks it.
    async fn delete_classes(&mut self, commands: &[String]) {
        let [delete, check] = commands else { panic!("{commands:?}") };
        let class = json!({"apiVersion": "ome.io/v1beta1", "kind": "AcceleratorClass", "metadata": {"name": "mine"}, "spec": {
            "vendor": "nvidia", "capabilities": {"memoryGB": "24Gi"}, "integration": {"kueueResourceFlavor": "mine"},
            "discovery": {"nodeSelector": {"nvidia.com/gpu.product": "NVIDIA-L4"}}}});
        self.test_cluster.apply(&class).await;
        let cluster = &self.test_cluster;
        cluster.wait_for("the flavor", FLAVORS, "", |objects| objects.contains_key("mine")).await;
        self.run(delete).await;
        let cluster = &self.test_cluster;
        cluster.wait_for("the deletion of the class", CLASSES, "", |objects| !objects.contains_key("mine")).await;
        cluster.wait_for("the deletion of the flavor", FLAVORS, "", |objects| !objects.contains_key("mine")).await;
        assert_eq!(self.run(check).await, "");
    }

    /// Returns the objects of all kinds except Events, which expire, and the Leases of nodes.
    async fn objects(&self) -> kube::Result<BTreeSet<String>> {
        let client = &self.test_cluster.cluster.client;
        let discovery = Discovery::new(client.clone()).run().await?;
        let mut found = BTreeSet::new();
        for (resource, capabilities) in discovery.groups().flat_map(ApiGroup::recommended_resources) {
            if resource.plural == "events" || !capabilities.supports_operation(verbs::LIST) {
                continue;
            }
            let api: Api<DynamicObject> = Api::all_with(client.clone(), &resource);
            for object in api.list(&ListParams::default()).await? {
                let namespace = object.metadata.namespace.unwrap_or_default();
                if namespace != "kube-node-lease" {
                    let name = object.metadata.name.unwrap_or_default();
                    found.insert(format!("{}.{} {namespace}/{name}", resource.plural, resource.group));
                }
            }
        }
        Ok(found)
    }

    /// Waits until the cluster has no objects but those of `before`: the API server deletes its own registration of the
    /// definitions asynchronously.
    async fn check_that_nothing_is_left(&self, before: &BTreeSet<String>) {
        assert!(self.operator.is_none());
        let start = Instant::now();
        loop {
            // Discovery fails while definitions are deleted.
            let left = self.objects().await.map(|objects| objects.difference(before).cloned().collect::<Vec<_>>());
            match left {
                Ok(left) if left.is_empty() => return,
                left => assert!(start.elapsed() < TIMEOUT, "left on the cluster: {left:#?}"),
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }
}
