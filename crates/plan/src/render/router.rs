//! Objects of a router: what the picker runs as, the picker, and what leads to it.

use serde_json::{Value, json};

use crate::labels::{self, Labels};
use crate::names;
use crate::router::{Names, Router};
use crate::topology::Owner;

/// API group of InferencePool.
const POOLS: &str = "inference.networking.k8s.io";
const RBAC: &str = "rbac.authorization.k8s.io";

/// Ports of the picker: where gateways ask, where probes do, and the page of its metrics.
const ASK: u16 = 9002;
const HEALTH: u16 = 9003;
const METRICS: u16 = 9090;
/// Where the picker finds its configuration.
const FOLDER: &str = "/config";
const FILE: &str = "config.yaml";
/// Annotation of the picker's Pods: another configuration makes other Pods.
const CHECKSUM: &str = "fusioninfer.io/config-checksum";

/// In apply order: an account with its rights and the configuration before the Pods that use them, and nothing that leads to
/// the picker before it.
pub(crate) fn render(owner: &Owner, router: &Router) -> Vec<Value> {
    let picker = Picker { owner, router, names: Names::of(owner) };
    let mut objects = picker.account();
    objects.extend([picker.config(), picker.deployment(), picker.service(), picker.pool()]);
    objects.extend(router.route.as_ref().map(|spec| picker.route(spec)));
    objects
}

struct Picker<'a> {
    owner: &'a Owner,
    router: &'a Router,
    names: Names,
}

impl Picker<'_> {
    fn object(&self, api_version: &str, kind: &str, name: &str) -> Value {
        self.labelled(api_version, kind, name, &self.router.labels)
    }

    fn labelled(&self, api_version: &str, kind: &str, name: &str, labels: &Labels) -> Value {
        let metadata = self.owner.metadata(name, &labels::managed(labels));
        json!({"apiVersion": api_version, "kind": kind, "metadata": metadata})
    }

    /// Whom the picker is, and what it may do: see the Pods of its namespace and its own pool.
    fn account(&self) -> Vec<Value> {
        let name = self.names.picker.as_str();
        let account = self.object("v1", "ServiceAccount", name);
        let mut role = self.object(&format!("{RBAC}/v1"), "Role", name);
        role["rules"] = json!([
            {"apiGroups": [""], "resources": ["pods"], "verbs": ["list", "watch"]},
            {"apiGroups": [POOLS], "resources": ["inferencepools"], "resourceNames": [self.names.pool], "verbs": ["list", "watch"]},
        ]);
        let mut binding = self.object(&format!("{RBAC}/v1"), "RoleBinding", name);
        binding["roleRef"] = json!({"apiGroup": RBAC, "kind": "Role", "name": name});
        binding["subjects"] = json!([{"kind": "ServiceAccount", "name": name, "namespace": self.owner.namespace}]);
        vec![account, role, binding]
    }

    fn config(&self) -> Value {
        let mut config = self.object("v1", "ConfigMap", &self.names.config);
        config["data"] = json!({FILE: self.router.config});
        config
    }

    fn deployment(&self) -> Value {
        let labels: Labels = self.router.labels.clone().into_iter().chain(self.router.queue.clone()).collect();
        let mut deployment = self.labelled("apps/v1", "Deployment", &self.names.picker, &labels);
        deployment["spec"] = json!({
            "replicas": 1,
            "selector": {"matchLabels": self.router.selector},
            // Somebody answers the gateway at all times: the new picker is ready before the old one goes.
            "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}},
            "template": self.template(),
        });
        deployment
    }

    fn template(&self) -> Value {
        json!({
            "metadata": {
                "labels": self.router.labels,
                "annotations": {CHECKSUM: format!("{:016x}", names::fingerprint(&self.router.config))},
            },
            "spec": {
                "serviceAccountName": self.names.picker,
                "securityContext": {
                    "runAsNonRoot": true, "runAsUser": 65532, "runAsGroup": 65532,
                    "seccompProfile": {"type": "RuntimeDefault"},
                },
                "containers": [self.container()],
                "volumes": [{"name": "config", "configMap": {"name": self.names.config}}],
            },
        })
    }

    /// `ostler picker`. It listens on its Pod's own address, of whichever IP family that is.
    fn container(&self) -> Value {
        let probe = |service: &str| json!({"grpc": {"port": HEALTH, "service": service}});
        let mut ready = probe("inference-extension");
        ready["periodSeconds"] = json!(2);
        json!({
            "name": "epp",
            "image": self.router.image,
            "args": [
                "picker",
                "--address=$(POD_IP)",
                format!("--grpc-port={ASK}"),
                format!("--grpc-health-port={HEALTH}"),
                format!("--metrics-port={METRICS}"),
                format!("--pool-name={}", self.names.pool),
                format!("--pool-namespace={}", self.owner.namespace),
                format!("--config-file={FOLDER}/{FILE}"),
            ],
            "env": [{"name": "POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}],
            "ports": [
                {"name": "grpc", "containerPort": ASK, "protocol": "TCP"},
                {"name": "grpc-health", "containerPort": HEALTH, "protocol": "TCP"},
                {"name": "metrics", "containerPort": METRICS, "protocol": "TCP"},
            ],
            "livenessProbe": probe("liveness"),
            "readinessProbe": ready,
            "resources": {"requests": {"cpu": "100m", "memory": "128Mi"}, "limits": {"memory": "1Gi"}},
            "securityContext": {
                "allowPrivilegeEscalation": false, "readOnlyRootFilesystem": true, "capabilities": {"drop": ["ALL"]},
            },
            "volumeMounts": [{"name": "config", "mountPath": FOLDER, "readOnly": true}],
        })
    }

    fn service(&self) -> Value {
        let port = |name: &str, port: u16| json!({"name": name, "port": port, "targetPort": port, "protocol": "TCP"});
        let mut service = self.object("v1", "Service", &self.names.picker);
        let ports = [port("grpc-ext-proc", ASK), port("grpc-health", HEALTH), port("http-metrics", METRICS)];
        service["spec"] = json!({"selector": self.router.selector, "ports": ports});
        service
    }

    /// Without the picker nobody knows who may answer, so nothing is sent anywhere then.
    fn pool(&self) -> Value {
        let target = &self.router.pool;
        let mut pool = self.object(api::neighbours::INFERENCE_POOL, "InferencePool", &self.names.pool);
        pool["spec"] = json!({
            "selector": {"matchLabels": target.selector},
            "targetPorts": [{"number": target.port}],
            "endpointPickerRef": {"name": self.names.picker, "port": {"number": ASK}, "failureMode": "FailClose"},
        });
        pool
    }

    fn route(&self, spec: &Value) -> Value {
        let mut route = self.object(api::neighbours::HTTP_ROUTE, "HTTPRoute", &self.names.route);
        route["spec"] = spec.clone();
        route
    }
}
