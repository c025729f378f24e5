//! CRDs of the Gateway API Inference Extension.

use serde_json::{Value, json};

use super::schema::{enum_schema, printer_column, resource_schema};

/// Returns the CRD of InferencePool v1, with the defaults and limits of the upstream CRD.
pub fn inference_pool_crd() -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {
            "name": "inferencepools.inference.networking.k8s.io",
            "annotations": {"api-approved.kubernetes.io": "https://github.com/kubernetes-sigs/gateway-api-inference-extension/pull/1173"},
        },
        "spec": {
            "group": "inference.networking.k8s.io",
            "scope": "Namespaced",
            "names": {
                "kind": "InferencePool",
                "listKind": "InferencePoolList",
                "plural": "inferencepools",
                "singular": "inferencepool",
                "shortNames": ["infpool"],
            },
            "versions": [{
                "name": "v1",
                "served": true,
                "storage": true,
                "schema": {"openAPIV3Schema": resource_schema(&inference_pool_spec())},
                "subresources": {"status": {}},
                "additionalPrinterColumns": [
                    printer_column("Picker", "string", ".spec.endpointPickerRef.name"),
                    printer_column("Age", "date", ".metadata.creationTimestamp"),
                ],
            }],
        },
    })
}

fn inference_pool_spec() -> Value {
    let port = json!({"type": "object", "required": ["number"], "properties": {
        "number": {"type": "integer", "format": "int32", "minimum": 1, "maximum": 65535},
    }});
    json!({"type": "object", "required": ["selector", "targetPorts"], "properties": {
        "appProtocol": enum_schema(&["http", "kubernetes.io/h2c"], Some("http")),
        "selector": {"type": "object", "required": ["matchLabels"], "properties": {
            "matchLabels": {"type": "object", "minProperties": 1, "maxProperties": 64,
                "additionalProperties": {"type": "string", "maxLength": 63}},
        }},
        "targetPorts": {"type": "array", "items": port, "minItems": 1, "maxItems": 8, "x-kubernetes-list-type": "atomic"},
        "endpointPickerRef": {"type": "object", "required": ["name"], "properties": {
            "group": {"type": "string", "maxLength": 253, "default": ""},
            "kind": {"type": "string", "minLength": 1, "maxLength": 63, "default": "Service"},
            "name": {"type": "string", "minLength": 1, "maxLength": 253},
            "port": port,
            "failureMode": enum_schema(&["FailOpen", "FailClose"], Some("FailClose")),
        }, "x-kubernetes-validations": [{
            "rule": "self.kind != 'Service' || has(self.port)",
            "message": "port is required when kind is 'Service' or unspecified (defaults to 'Service')",
        }]},
    }})
}

/// API groups of InferenceObjective and InferenceModelRewrite: that of the Inference Extension, and its successor.
const OBJECTIVE_GROUPS: [&str; 2] = ["inference.networking.x-k8s.io", "llm-d.ai"];

/// Returns the CRDs of InferenceObjective v1alpha2, of both API groups, with the defaults and limits of the upstream CRD.
pub fn inference_objective_crds() -> [Value; 2] {
    let spec = json!({"type": "object", "required": ["poolRef"], "properties": {
        "poolRef": pool_reference(),
        "priority": {"type": "integer"},
    }});
    let columns = [
        printer_column("Inference Pool", "string", ".spec.poolRef.name"),
        printer_column("Priority", "string", ".spec.priority"),
        printer_column("Age", "date", ".metadata.creationTimestamp"),
    ];
    OBJECTIVE_GROUPS.map(|group| v1alpha2_crd(group, "InferenceObjective", &spec, &columns))
}

/// Returns the CRDs of InferenceModelRewrite v1alpha2, of both API groups, with the defaults and limits of the upstream CRD.
pub fn inference_model_rewrite_crds() -> [Value; 2] {
    let model = json!({"type": "object", "required": ["value"], "properties": {
        "type": enum_schema(&["Exact"], Some("Exact")),
        "value": {"type": "string", "minLength": 1},
    }});
    let target = json!({"type": "object", "required": ["modelRewrite"], "properties": {
        "modelRewrite": {"type": "string"},
        "weight": {"type": "integer", "format": "int32", "minimum": 1, "maximum": 1_000_000},
    }});
    let rule = json!({"type": "object", "required": ["targets"], "properties": {
        "matches": {"type": "array", "items": {"type": "object", "required": ["model"], "properties": {"model": model}}},
        "targets": {"type": "array", "items": target, "minItems": 1},
    }});
    let spec = json!({"type": "object", "required": ["poolRef", "rules"], "properties": {
        "poolRef": pool_reference(),
        "rules": {"type": "array", "items": rule},
    }});
    let columns = [
        printer_column("Inference Pool", "string", ".spec.poolRef.name"),
        printer_column("Age", "date", ".metadata.creationTimestamp"),
    ];
    OBJECTIVE_GROUPS.map(|group| v1alpha2_crd(group, "InferenceModelRewrite", &spec, &columns))
}

fn pool_reference() -> Value {
    json!({"type": "object", "required": ["name"], "properties": {
        "group": {"type": "string", "maxLength": 253, "default": "inference.networking.k8s.io"},
        "kind": {"type": "string", "minLength": 1, "maxLength": 63, "default": "InferencePool"},
        "name": {"type": "string", "minLength": 1, "maxLength": 253},
    }})
}

fn v1alpha2_crd(group: &str, kind: &str, spec: &Value, columns: &[Value]) -> Value {
    let singular = kind.to_lowercase();
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{singular}s.{group}")},
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": {"kind": kind, "listKind": format!("{kind}List"), "plural": format!("{singular}s"), "singular": singular},
            "versions": [{
                "name": "v1alpha2",
                "served": true,
                "storage": true,
                "schema": {"openAPIV3Schema": resource_schema(spec)},
                "subresources": {"status": {}},
                "additionalPrinterColumns": columns,
            }],
        },
    })
}
