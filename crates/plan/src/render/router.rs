//! Renders the objects of a router: ServiceAccount and RBAC, endpoint picker, InferencePool and HTTPRoute.

use api::inference::PICKER_CONFIG_KEY;
use serde_json::{Value, json};

use crate::labels::{self, Labels};
use crate::names;
use crate::owner::Owner;
use crate::router::{Router, RouterNames};

/// API group of InferencePool.
const POOL_GROUP: &str = "inference.networking.k8s.io";
/// API group of BackendPool, LLMUseCase and LLMUseCaseSet.
const USE_CASE_GROUP: &str = "inference.networking.x-k8s.io";
const RBAC_GROUP: &str = "rbac.authorization.k8s.io";

/// ext_proc port of the picker.
const EXT_PROC_PORT: u16 = 9002;
/// Port of the gRPC health service.
const HEALTH_PORT: u16 = 9003;
/// Port of Prometheus metrics.
const METRICS_PORT: u16 = 9090;
/// How long the picker accepts requests after it is deleted. Gateways learn from its readiness or endpoints that it ends.
const DRAIN_SECONDS: u32 = 10;
/// Grace period of the picker: it drains, then responses whose model name it restores may continue for five minutes.
const GRACE_PERIOD_SECONDS: u32 = DRAIN_SECONDS + 320;
/// Mount path of the picker's configuration.
const CONFIG_DIRECTORY: &str = "/config";
const CONFIG_FILE: &str = "config.yaml";
/// Annotation of the picker's Pods with the hash of the configuration, so that a change restarts the Pods.
const CONFIG_CHECKSUM_ANNOTATION: &str = "fusioninfer.io/config-checksum";

/// Renders the objects in apply order: ServiceAccount, RBAC and configuration before the Deployment, and the route last.
pub(crate) fn render(owner: &Owner, router: &Router) -> Vec<Value> {
    let picker = PickerObjects { owner, router, names: RouterNames::for_owner(owner) };
    let mut objects = picker.account();
    objects.extend([picker.config(), picker.deployment(), picker.service(), picker.pool()]);
    objects.extend(router.route.as_ref().map(|spec| picker.route(spec)));
    objects
}

/// Renders the objects of one picker.
struct PickerObjects<'a> {
    owner: &'a Owner,
    router: &'a Router,
    names: RouterNames,
}

impl PickerObjects<'_> {
    fn object(&self, api_version: &str, kind: &str, name: &str) -> Value {
        self.object_with_labels(api_version, kind, name, &self.router.labels)
    }

    fn object_with_labels(&self, api_version: &str, kind: &str, name: &str, labels: &Labels) -> Value {
        let metadata = self.owner.metadata(name, &labels::with_managed_by(labels));
        json!({"apiVersion": api_version, "kind": kind, "metadata": metadata})
    }

    /// Renders ServiceAccount, Role and RoleBinding, which allow listing and watching the namespace's Pods and use cases, and
    /// the picker's pool.
    fn account(&self) -> Vec<Value> {
        let name = self.names.picker.as_str();
        let account = self.object("v1", "ServiceAccount", name);
        let mut role = self.object(&format!("{RBAC_GROUP}/v1"), "Role", name);
        role["rules"] = json!([
            {"apiGroups": [""], "resources": ["pods"], "verbs": ["list", "watch"]},
            {"apiGroups": [POOL_GROUP], "resources": ["inferencepools"], "resourceNames": [self.names.pool], "verbs": ["list", "watch"]},
            {"apiGroups": [USE_CASE_GROUP], "resources": ["backendpools"], "resourceNames": [self.names.pool], "verbs": ["list", "watch"]},
            {"apiGroups": [USE_CASE_GROUP], "resources": ["llmusecases"], "verbs": ["list", "watch"]},
            {"apiGroups": [USE_CASE_GROUP], "resources": ["llmusecasesets"], "verbs": ["list", "watch"]},
        ]);
        let mut binding = self.object(&format!("{RBAC_GROUP}/v1"), "RoleBinding", name);
        binding["roleRef"] = json!({"apiGroup": RBAC_GROUP, "kind": "Role", "name": name});
        binding["subjects"] = json!([{"kind": "ServiceAccount", "name": name, "namespace": self.owner.namespace}]);
        vec![account, role, binding]
    }

    /// Renders the ConfigMap, which the gateway reads too.
    fn config(&self) -> Value {
        let mut config = self.object("v1", "ConfigMap", &self.names.config);
        config["metadata"]["labels"][PICKER_CONFIG_KEY] = json!("true");
        config["data"] = json!({CONFIG_FILE: self.router.config});
        config
    }

    fn deployment(&self) -> Value {
        let labels: Labels = self.router.labels.clone().into_iter().chain(self.router.queue_labels.clone()).collect();
        let mut deployment = self.object_with_labels("apps/v1", "Deployment", &self.names.picker, &labels);
        deployment["spec"] = json!({
            "replicas": 1,
            "selector": {"matchLabels": self.router.selector},
            // The new picker is ready before the old one stops, so that the gateway always has one.
            "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}},
            "template": self.template(),
        });
        deployment
    }

    fn template(&self) -> Value {
        json!({
            "metadata": {
                "labels": self.router.labels,
                "annotations": {CONFIG_CHECKSUM_ANNOTATION: format!("{:016x}", names::fingerprint(&self.router.config))},
            },
            "spec": {
                "serviceAccountName": self.names.picker,
                "terminationGracePeriodSeconds": GRACE_PERIOD_SECONDS,
                "securityContext": {
                    "runAsNonRoot": true, "runAsUser": 65532, "runAsGroup": 65532,
                    "seccompProfile": {"type": "RuntimeDefault"},
                },
                "containers": [self.container()],
                "volumes": [{"name": "config", "configMap": {"name": self.names.config}}],
            },
        })
    }

    /// Renders the container of `ostler picker`. It listens on the Pod IP, which works for both IP families.
    fn container(&self) -> Value {
        let probe = |service: &str| json!({"grpc": {"port": HEALTH_PORT, "service": service}});
        let mut ready = probe("inference-extension");
        ready["periodSeconds"] = json!(2);
        json!({
            "name": "epp",
            "image": self.router.image,
            "args": [
                "picker",
                "--address=$(POD_IP)",
                format!("--grpc-port={EXT_PROC_PORT}"),
                format!("--grpc-health-port={HEALTH_PORT}"),
                format!("--metrics-port={METRICS_PORT}"),
                format!("--pool-name={}", self.names.pool),
                format!("--pool-namespace={}", self.owner.namespace),
                format!("--config-file={CONFIG_DIRECTORY}/{CONFIG_FILE}"),
                format!("--drain-timeout={DRAIN_SECONDS}s"),
            ],
            "env": [{"name": "POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}],
            "ports": [
                {"name": "grpc", "containerPort": EXT_PROC_PORT, "protocol": "TCP"},
                {"name": "grpc-health", "containerPort": HEALTH_PORT, "protocol": "TCP"},
                {"name": "metrics", "containerPort": METRICS_PORT, "protocol": "TCP"},
            ],
            "livenessProbe": probe("liveness"),
            "readinessProbe": ready,
            "resources": {"requests": {"cpu": "100m", "memory": "128Mi"}, "limits": {"memory": "1Gi"}},
            "securityContext": {
                "allowPrivilegeEscalation": false, "readOnlyRootFilesystem": true, "capabilities": {"drop": ["ALL"]},
            },
            "volumeMounts": [{"name": "config", "mountPath": CONFIG_DIRECTORY, "readOnly": true}],
        })
    }

    fn service(&self) -> Value {
        let port = |name: &str, port: u16| json!({"name": name, "port": port, "targetPort": port, "protocol": "TCP"});
        let mut service = self.object("v1", "Service", &self.names.picker);
        let ports = [
            port("grpc-ext-proc", EXT_PROC_PORT),
            port("grpc-health", HEALTH_PORT),
            port("http-metrics", METRICS_PORT),
        ];
        service["spec"] = json!({"selector": self.router.selector, "ports": ports});
        service
    }

    /// Renders the InferencePool. It fails closed, because requests cannot be routed without the picker.
    fn pool(&self) -> Value {
        let target = &self.router.pool;
        let mut pool = self.object(api::integrations::INFERENCE_POOL_API_VERSION, "InferencePool", &self.names.pool);
        // ostler's gateway selects endpoints by the same configuration.
        pool["metadata"]["annotations"] = json!({PICKER_CONFIG_KEY: self.names.config});
        pool["spec"] = json!({
            "selector": {"matchLabels": target.selector},
            "targetPorts": [{"number": target.port}],
            "endpointPickerRef": {"name": self.names.picker, "port": {"number": EXT_PROC_PORT}, "failureMode": "FailClose"},
        });
        pool
    }

    fn route(&self, spec: &Value) -> Value {
        let mut route = self.object(api::integrations::HTTP_ROUTE_API_VERSION, "HTTPRoute", &self.names.route);
        route["spec"] = spec.clone();
        route
    }
}
