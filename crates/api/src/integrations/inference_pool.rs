//! CRD of the Gateway API Inference Extension.

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
