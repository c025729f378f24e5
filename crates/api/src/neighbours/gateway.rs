//! Kinds of the Gateway API, and of its extension for inference.

use serde_json::{Value, json};

use super::{column, one_of, open_object};

/// InferencePool v1, with the defaults and limits that the upstream CRD has.
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
                "schema": {"openAPIV3Schema": object_of(&inference_pool_spec())},
                "subresources": {"status": {}},
                "additionalPrinterColumns": [
                    column("Picker", "string", ".spec.endpointPickerRef.name"),
                    column("Age", "date", ".metadata.creationTimestamp"),
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
        "appProtocol": one_of(&["http", "kubernetes.io/h2c"], Some("http")),
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
            "failureMode": one_of(&["FailOpen", "FailClose"], Some("FailClose")),
        }, "x-kubernetes-validations": [{
            "rule": "self.kind != 'Service' || has(self.port)",
            "message": "port is required when kind is 'Service' or unspecified (defaults to 'Service')",
        }]},
    }})
}

/// HTTPRoute v1. What stands in rules, and may stand there one day, is for a gateway's controller to judge.
pub fn http_route_crd() -> Value {
    let list = json!({"type": "array", "items": open_object(), "x-kubernetes-list-type": "atomic"});
    let spec = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true, "properties": {
        "parentRefs": list,
        "hostnames": {"type": "array", "items": {"type": "string"}, "maxItems": 16},
        "rules": list,
    }});
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {
            "name": "httproutes.gateway.networking.k8s.io",
            "annotations": {"api-approved.kubernetes.io": "https://github.com/kubernetes-sigs/gateway-api/pull/3328"},
        },
        "spec": {
            "group": "gateway.networking.k8s.io",
            "scope": "Namespaced",
            "names": {
                "kind": "HTTPRoute",
                "listKind": "HTTPRouteList",
                "plural": "httproutes",
                "singular": "httproute",
                "categories": ["gateway-api"],
            },
            "versions": [{
                "name": "v1",
                "served": true,
                "storage": true,
                "schema": {"openAPIV3Schema": object_of(&spec)},
                "subresources": {"status": {}},
                "additionalPrinterColumns": [
                    column("Hostnames", "string", ".spec.hostnames"),
                    column("Age", "date", ".metadata.creationTimestamp"),
                ],
            }],
        },
    })
}

fn object_of(spec: &Value) -> Value {
    json!({"type": "object", "required": ["spec"], "properties": {
        "apiVersion": {"type": "string"},
        "kind": {"type": "string"},
        "metadata": {"type": "object"},
        "spec": spec,
        "status": open_object(),
    }})
}
