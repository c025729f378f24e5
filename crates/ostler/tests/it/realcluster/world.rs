//! The cluster, and the operators on it.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use kube::Api;
use kube::api::{DeleteParams, DynamicObject, Patch, PatchParams};
use operator::rights;
use realcluster::{Account, Binaries, Process, Proxy, RealCluster, patiently};
use serde_json::{Value, json};

use crate::session::{PATIENCE, ostler};

pub(crate) const OME: (&str, &str) = ("inferenceservices.ome.io", "v1beta1");
pub(crate) const ROLES: (&str, &str) = ("inferenceservices.fusioninfer.io", "v1alpha1");
pub(crate) const CLASSES: (&str, &str) = ("acceleratorclasses.ome.io", "v1beta1");
pub(crate) const SETS: (&str, &str) = ("leaderworkersets.leaderworkerset.x-k8s.io", "v1");
pub(crate) const GROUPS: (&str, &str) = ("podgroups.scheduling.volcano.sh", "v1beta1");
pub(crate) const DEPLOYMENTS: (&str, &str) = ("deployments.apps", "v1");
pub(crate) const AUTOSCALERS: (&str, &str) = ("horizontalpodautoscalers.autoscaling", "v2");
pub(crate) const SERVICES: (&str, &str) = ("services", "v1");
pub(crate) const PODS: (&str, &str) = ("pods", "v1");
pub(crate) const REVISIONS: (&str, &str) = ("controllerrevisions.apps", "v1");
pub(crate) const STATEFUL_SETS: (&str, &str) = ("statefulsets.apps", "v1");
pub(crate) const NODES: (&str, &str) = ("nodes", "v1");

/// Objects by name.
pub(crate) type Objects = BTreeMap<String, Value>;

/// One running `ostler operator`, behind a proxy of its own.
pub(crate) struct Operator {
    pub process: Arc<Mutex<Process>>,
    pub proxy: Proxy,
}

pub(crate) struct World {
    pub cluster: RealCluster,
    pub folder: PathBuf,
    pub account: Option<Account>,
    pub operators: Vec<Operator>,
}

// === impl World ===

impl World {
    pub(crate) async fn start(binaries: Binaries, folder: PathBuf) -> Self {
        let cluster = RealCluster::start(binaries, folder.clone()).await.unwrap();
        cluster.apply(&realcluster::gpu_nodes(0, 2)).await.unwrap();
        Self { cluster, folder, account: None, operators: Vec::new() }
    }

    /// Starts an operator as the shipped account.
    pub(crate) async fn operate(&mut self, name: &str, args: &[&str]) {
        let account = self.cluster.account(operator::NAMESPACE, "ostler-operator").await.unwrap();
        self.until_granted(&account.user).await;
        let proxy = Proxy::start(account.client.clone()).await.unwrap();
        self.account = Some(account);
        let kubeconfig = self.folder.join(format!("{name}.kubeconfig"));
        std::fs::write(&kubeconfig, proxy.kubeconfig()).unwrap();
        let mut command = ostler(&["operator", "--metrics", "127.0.0.1:0"]);
        command.args(["--leader-elect-namespace", operator::NAMESPACE, "--kubeconfig"]).arg(kubeconfig);
        command.args(if args.is_empty() { &["--webhook", "127.0.0.1:0"] } else { args });
        command.env("OSTLER_LOG", "info");
        let process = Process::start(&format!("operator-{name}"), &mut command, &self.cluster.logs()).unwrap();
        self.operators.push(Operator { process: Arc::new(Mutex::new(process)), proxy });
    }

    /// Once the API server goes by the roles of that account: a refusal before would count as one of theirs.
    async fn until_granted(&self, user: &str) {
        for (rules, namespace) in [(rights::of_cluster(), ""), (rights::of_namespace(), operator::NAMESPACE)] {
            let first = |field: &str| rules[0][field][0].as_str().unwrap_or_default().to_owned();
            let attributes = json!({"verb": first("verbs"), "group": first("apiGroups"), "resource": first("resources"),
                "name": first("resourceNames"), "namespace": namespace});
            let review = json!({"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview",
                "spec": {"user": user, "resourceAttributes": attributes}});
            let body = serde_json::to_vec(&review).unwrap();
            eventually(&format!("{user} may {attributes}"), async || {
                let path = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
                let request = http::Request::post(path).header("content-type", "application/json");
                let answer: kube::Result<Value> =
                    self.cluster.client.request(request.body(body.clone()).unwrap()).await;
                answer.is_ok_and(|review| review["status"]["allowed"] == true).then_some(())
            })
            .await;
        }
    }

    /// The operator that was started last.
    pub(crate) fn operator(&self) -> &Operator {
        self.operators.last().unwrap()
    }

    pub(crate) fn api(&self, (resource, version): (&str, &str), namespace: &str) -> Api<DynamicObject> {
        realcluster::resource(&self.cluster.client, resource, version, namespace)
    }

    pub(crate) async fn namespace(&self, name: &str) {
        self.apply(&json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})).await;
    }

    /// What was stored.
    pub(crate) async fn apply(&self, object: &Value) -> Value {
        realcluster::apply(&self.cluster.client, object).await.unwrap_or_else(|error| panic!("{error:#}: {object}"))
    }

    /// The server's words.
    pub(crate) async fn refusal(&self, object: &Value) -> Option<String> {
        realcluster::apply(&self.cluster.client, object).await.err().map(|error| format!("{error:#}"))
    }

    pub(crate) async fn get(&self, kind: (&str, &str), namespace: &str, name: &str) -> Value {
        let api = self.api(kind, namespace);
        serde_json::to_value(patiently(async || api.get(name).await).await.unwrap()).unwrap()
    }

    /// Also where it has gone by itself.
    pub(crate) async fn delete(&self, kind: (&str, &str), namespace: &str, name: &str) {
        let (api, params) = (self.api(kind, namespace), DeleteParams::background());
        match patiently(async || api.delete(name, &params).await).await {
            Err(kube::Error::Api(status)) if status.code == 404 => {}
            deleted => drop(deleted.unwrap()),
        }
    }

    /// The server merges `change` into whatever is live: controllers write beside us.
    pub(crate) async fn patch(&self, kind: (&str, &str), namespace: &str, name: &str, change: &Value) {
        let (api, params) = (self.api(kind, namespace), PatchParams::default());
        patiently(async || api.patch(name, &params, &Patch::Merge(change)).await).await.unwrap();
    }

    /// The first state of all objects of a kind for which `holds`.
    pub(crate) async fn until(
        &self,
        what: &str,
        kind: (&str, &str),
        namespace: &str,
        holds: impl Fn(&Objects) -> bool,
    ) -> Objects {
        realcluster::until(what, self.api(kind, namespace), holds).await.unwrap()
    }

    /// The server's words once `object` is refused. Until the API server has learnt of what refuses it, it is stored.
    pub(crate) async fn until_refused(&self, object: &Value, kind: (&str, &str), namespace: &str) -> String {
        eventually("a refusal", async || {
            let refusal = self.refusal(object).await;
            if refusal.is_none() {
                self.delete(kind, namespace, object["metadata"]["name"].as_str().unwrap()).await;
            }
            refusal
        })
        .await
    }

    /// Once that object's condition `kind` has that status, said of the object as it is now: the object.
    pub(crate) async fn condition(
        &self,
        of: (&str, &str),
        namespace: &str,
        name: &str,
        (kind, status): (&str, &str),
        says: &str,
    ) -> Value {
        let what = format!("{name}: {kind}={status} with {says:?}");
        let holds = |found: &Objects| {
            let object = named(found, name);
            condition(object, kind).is_some_and(|told| {
                told["observedGeneration"] == object["metadata"]["generation"]
                    && told["status"] == status
                    && format!("{} {}", told["reason"], told["message"]).contains(says)
            })
        };
        let mut found = self.until(&what, of, namespace, holds).await;
        found.remove(name).unwrap_or_default()
    }

    /// Once nothing of these kinds is left in the namespace.
    pub(crate) async fn nothing_left(&self, namespace: &str, kinds: &[(&str, &str)]) {
        for kind in kinds {
            self.until(&format!("no {} left", kind.0), *kind, namespace, Objects::is_empty).await;
        }
    }
}

/// What `ask` finds in the end, where nothing tells when.
pub(crate) async fn eventually<T>(what: &str, ask: impl AsyncFn() -> Option<T>) -> T {
    let began = Instant::now();
    loop {
        match ask().await {
            Some(found) => return found,
            None => assert!(began.elapsed() < PATIENCE, "{what}: not after {} s", PATIENCE.as_secs()),
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// The object of that name, or nothing.
pub(crate) fn named<'a>(found: &'a Objects, name: &str) -> &'a Value {
    found.get(name).unwrap_or(&Value::Null)
}

/// The condition of that type.
pub(crate) fn condition<'a>(object: &'a Value, kind: &str) -> Option<&'a Value> {
    object["status"]["conditions"].as_array()?.iter().find(|one| one["type"] == kind)
}
