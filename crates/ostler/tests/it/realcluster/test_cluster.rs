//! The real cluster of the tests, and the operators that run against it.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use cluster::PolicyRules;
use kube::Api;
use kube::api::{DeleteParams, DynamicObject, Patch, PatchParams};
use realcluster::{Binaries, Process, Proxy, RealCluster, ServiceAccountClient, retry_transient_errors};
use serde_json::{Value, json};

use crate::session::{TIMEOUT, ostler, outcome};

pub(crate) const OME: (&str, &str) = ("inferenceservices.ome.io", "v1beta1");
pub(crate) const ROLES: (&str, &str) = ("inferenceservices.fusioninfer.io", "v1alpha1");
pub(crate) const CLASSES: (&str, &str) = ("acceleratorclasses.ome.io", "v1beta1");
pub(crate) const SETS: (&str, &str) = ("leaderworkersets.leaderworkerset.x-k8s.io", "v1");
pub(crate) const GROUPS: (&str, &str) = ("podgroups.scheduling.volcano.sh", "v1beta1");
pub(crate) const DEPLOYMENTS: (&str, &str) = ("deployments.apps", "v1");
pub(crate) const AUTOSCALERS: (&str, &str) = ("horizontalpodautoscalers.autoscaling", "v2");
pub(crate) const SERVICES: (&str, &str) = ("services", "v1");
pub(crate) const ENDPOINT_SLICES: (&str, &str) = ("endpointslices.discovery.k8s.io", "v1");
pub(crate) const PODS: (&str, &str) = ("pods", "v1");
pub(crate) const REVISIONS: (&str, &str) = ("controllerrevisions.apps", "v1");
pub(crate) const STATEFUL_SETS: (&str, &str) = ("statefulsets.apps", "v1");
pub(crate) const NODES: (&str, &str) = ("nodes", "v1");

/// Longest time until the operator has applied the plan of a ready service.
const DIFF_TIMEOUT: Duration = Duration::from_secs(60);

/// Objects by name.
pub(crate) type Objects = BTreeMap<String, Value>;

/// A running `ostler operator` that connects through its own proxy.
pub(crate) struct Operator {
    pub process: Arc<Mutex<Process>>,
    pub proxy: Proxy,
}

/// The cluster, and helpers to change and observe its objects.
pub(crate) struct TestCluster {
    pub cluster: RealCluster,
    pub directory: PathBuf,
    pub account: Option<ServiceAccountClient>,
    pub operators: Vec<Operator>,
}

// === impl TestCluster ===

impl TestCluster {
    /// Starts the cluster with two GPU nodes.
    pub(crate) async fn start(binaries: Binaries, directory: PathBuf) -> Self {
        let cluster = RealCluster::start(binaries, directory.clone()).await.unwrap();
        cluster.apply(&realcluster::gpu_nodes(0, 2)).await.unwrap();
        Self { cluster, directory, account: None, operators: Vec::new() }
    }

    /// Starts an operator for all namespaces with the shipped ServiceAccount.
    pub(crate) async fn start_operator(&mut self, name: &str, args: &[&str]) {
        let rules =
            [(operator::cluster_role_rules(), ""), (operator::namespace_role_rules(), operator::DEFAULT_NAMESPACE)];
        let args = if args.is_empty() { &["--webhook", "127.0.0.1:0"] } else { args };
        self.start_operator_with_permissions(name, args, &rules).await;
    }

    /// Starts an operator for `namespaces` with the shipped ServiceAccount, which has no other roles.
    pub(crate) async fn start_namespaced_operator(&mut self, name: &str, namespaces: &[&str]) {
        let own_rules = (operator::own_namespace_rules(), operator::DEFAULT_NAMESPACE);
        let watched = namespaces.iter().map(|namespace| (operator::watched_namespace_rules(), *namespace));
        let rules: Vec<_> = [(operator::cluster_reader_rules(), ""), own_rules].into_iter().chain(watched).collect();
        let args: Vec<&str> = namespaces.iter().flat_map(|namespace| ["--namespace", namespace]).collect();
        self.start_operator_with_permissions(name, &args, &rules).await;
    }

    /// Starts an operator once the authorizer has observed the rules in these namespaces. Otherwise the audit log would
    /// contain forbidden requests.
    async fn start_operator_with_permissions(&mut self, name: &str, args: &[&str], rules: &[(PolicyRules, &str)]) {
        let account = self.cluster.service_account(operator::DEFAULT_NAMESPACE, "ostler-operator").await.unwrap();
        for (rules, namespace) in rules {
            self.wait_for_access(&account.user, &rules[0], namespace, true).await;
        }
        let proxy = Proxy::start(account.client.clone()).await.unwrap();
        self.account = Some(account);
        let kubeconfig = self.directory.join(format!("{name}.kubeconfig"));
        std::fs::write(&kubeconfig, proxy.kubeconfig()).unwrap();
        let mut command = ostler(&["operator", "--metrics", "127.0.0.1:0"]);
        command.args(["--leader-elect-namespace", operator::DEFAULT_NAMESPACE, "--kubeconfig"]).arg(kubeconfig);
        command.args(args);
        command.env("OSTLER_LOG", "info");
        let process = Process::start(&format!("operator-{name}"), &mut command, &self.cluster.log_directory()).unwrap();
        self.operators.push(Operator { process: Arc::new(Mutex::new(process)), proxy });
    }

    /// Waits until the authorizer allows or denies `user` the first permission of `rule`.
    pub(crate) async fn wait_for_access(&self, user: &str, rule: &Value, namespace: &str, is_allowed: bool) {
        let first_value = |field: &str| rule[field][0].as_str().unwrap_or_default().to_owned();
        let attributes = json!({"verb": first_value("verbs"), "group": first_value("apiGroups"), "resource": first_value("resources"),
            "name": first_value("resourceNames"), "namespace": namespace});
        let review = json!({"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview",
            "spec": {"user": user, "resourceAttributes": attributes}});
        let body = serde_json::to_vec(&review).unwrap();
        eventually(&format!("allowed={is_allowed} for {user}: {attributes}"), async || {
            let path = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
            let request = http::Request::post(path).header("content-type", "application/json");
            let result: kube::Result<Value> = self.cluster.client.request(request.body(body.clone()).unwrap()).await;
            result.is_ok_and(|review| review["status"]["allowed"] == is_allowed).then_some(())
        })
        .await;
    }

    /// Returns the operator that was started last.
    pub(crate) fn operator(&self) -> &Operator {
        self.operators.last().unwrap()
    }

    pub(crate) fn api(&self, (resource, version): (&str, &str), namespace: &str) -> Api<DynamicObject> {
        realcluster::dynamic_api(&self.cluster.client, resource, version, namespace)
    }

    /// Creates a namespace.
    pub(crate) async fn namespace(&self, name: &str) {
        self.apply(&json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})).await;
    }

    /// Applies an object and returns the stored object.
    pub(crate) async fn apply(&self, object: &Value) -> Value {
        realcluster::apply(&self.cluster.client, object).await.unwrap_or_else(|error| panic!("{error:#}: {object}"))
    }

    /// Applies an object and returns the error if it is rejected.
    pub(crate) async fn rejection(&self, object: &Value) -> Option<String> {
        realcluster::apply(&self.cluster.client, object).await.err().map(|error| format!("{error:#}"))
    }

    pub(crate) async fn get(&self, kind: (&str, &str), namespace: &str, name: &str) -> Value {
        let api = self.api(kind, namespace);
        serde_json::to_value(retry_transient_errors(async || api.get(name).await).await.unwrap()).unwrap()
    }

    /// Deletes an object if it exists.
    pub(crate) async fn delete(&self, kind: (&str, &str), namespace: &str, name: &str) {
        let (api, params) = (self.api(kind, namespace), DeleteParams::background());
        match retry_transient_errors(async || api.delete(name, &params).await).await {
            Err(kube::Error::Api(status)) if status.code == 404 => {}
            result => drop(result.unwrap()),
        }
    }

    /// Applies a merge patch, which does not conflict with concurrent changes of controllers.
    pub(crate) async fn patch(&self, kind: (&str, &str), namespace: &str, name: &str, change: &Value) {
        let (api, params) = (self.api(kind, namespace), PatchParams::default());
        retry_transient_errors(async || api.patch(name, &params, &Patch::Merge(change)).await).await.unwrap();
    }

    /// Waits until the objects of a kind match `predicate`, and returns them.
    pub(crate) async fn wait_for(
        &self,
        description: &str,
        kind: (&str, &str),
        namespace: &str,
        predicate: impl Fn(&Objects) -> bool,
    ) -> Objects {
        realcluster::wait_until(description, self.api(kind, namespace), predicate).await.unwrap()
    }

    /// Applies and deletes `object` until it is rejected, and returns the error. The API server stores the object until it has
    /// observed the configuration that rejects it.
    pub(crate) async fn wait_for_rejection(&self, object: &Value, kind: (&str, &str), namespace: &str) -> String {
        eventually("a rejection", async || {
            let rejection = self.rejection(object).await;
            if rejection.is_none() {
                self.delete(kind, namespace, object["metadata"]["name"].as_str().unwrap()).await;
            }
            rejection
        })
        .await
    }

    /// Waits until the condition `kind` has `status` for the current generation and its reason or message contains
    /// `text`. Returns the object.
    pub(crate) async fn wait_for_condition(
        &self,
        resource: (&str, &str),
        namespace: &str,
        name: &str,
        (kind, status): (&str, &str),
        text: &str,
    ) -> Value {
        let description = format!("{name}: {kind}={status} with {text:?}");
        let is_met = |objects: &Objects| {
            let object = object_named(objects, name);
            cluster::find_current_condition(object, kind).is_some_and(|condition| {
                condition["status"] == status
                    && format!("{} {}", condition["reason"], condition["message"]).contains(text)
            })
        };
        let mut objects = self.wait_for(&description, resource, namespace, is_met).await;
        objects.remove(name).unwrap_or_default()
    }

    /// Waits until the namespace has no objects of these kinds.
    pub(crate) async fn wait_for_deletion(&self, namespace: &str, kinds: &[(&str, &str)]) {
        for kind in kinds {
            self.wait_for(&format!("the deletion of all {}", kind.0), *kind, namespace, Objects::is_empty).await;
        }
    }
}

/// Calls `poll` until it returns a value. Used where there is no event to wait for.
pub(crate) async fn eventually<T>(description: &str, poll: impl AsyncFn() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        match poll().await {
            Some(value) => return value,
            None => {
                assert!(start.elapsed() < TIMEOUT, "timed out after {} s waiting for {description}", TIMEOUT.as_secs());
            }
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// Waits until `ostler plan --diff` finds nothing to change for the service of the namespace. The client is that of an
/// administrator.
pub(crate) async fn wait_for_empty_diff(test_cluster: &TestCluster, namespace: &str) {
    let kubeconfig = test_cluster.cluster.kubeconfig.display().to_string();
    let start = Instant::now();
    loop {
        let args = ["plan", "--diff", "-n", namespace, "--kubeconfig", &kubeconfig];
        let (stdout, stderr, code) = outcome(&ostler(&args).output().unwrap());
        assert_eq!((stderr.as_str(), code), ("", Some(0)), "{stdout}");
        if stdout == "Nothing would change (1 service).\n" {
            return;
        }
        assert!(start.elapsed() < DIFF_TIMEOUT, "{stdout}");
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
}

/// Returns the object with this name, or null.
pub(crate) fn object_named<'a>(objects: &'a Objects, name: &str) -> &'a Value {
    objects.get(name).unwrap_or(&Value::Null)
}

/// Returns the condition with this type.
pub(crate) fn find_condition<'a>(object: &'a Value, kind: &str) -> Option<&'a Value> {
    object["status"]["conditions"].as_array()?.iter().find(|condition| condition["type"] == kind)
}
