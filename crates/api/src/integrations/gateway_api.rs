//! CRDs of the Gateway API. Those of GatewayClass and Gateway have the defaults of the upstream CRDs for the fields that gateways read.

use serde_json::{Value, json};

use super::schema::{enum_schema, open_object, printer_column, resource_schema};

/// Returns the CRD of GatewayClass v1.
pub fn gateway_class_crd() -> Value {
    let spec = json!({"type": "object", "required": ["controllerName"], "properties": {
        "controllerName": {"type": "string", "minLength": 1, "maxLength": 253, "x-kubernetes-validations": [
            {"rule": "self == oldSelf", "message": "Value is immutable"},
        ]},
        "description": {"type": "string", "maxLength": 64},
        "parametersRef": open_object(),
    }});
    let columns = [
        printer_column("Controller", "string", ".spec.controllerName"),
        printer_column("Accepted", "string", ".status.conditions[?(@.type==\"Accepted\")].status"),
    ];
    crd("GatewayClass", "gatewayclasses", &["gc"], "v1", &spec, &columns)
}

/// Returns the CRD of Gateway v1.
pub fn gateway_crd() -> Value {
    let namespaces = json!({"type": "object", "default": {"from": "Same"}, "properties": {
        "from": enum_schema(&["All", "Selector", "Same"], Some("Same")),
        "selector": open_object(),
    }});
    let kinds = json!({"type": "array", "items": {"type": "object", "required": ["kind"], "properties": {
        "group": {"type": "string", "default": "gateway.networking.k8s.io"},
        "kind": {"type": "string"},
    }}});
    let listener = json!({"type": "object", "required": ["name", "port", "protocol"], "properties": {
        "name": {"type": "string", "minLength": 1, "maxLength": 253},
        "hostname": {"type": "string", "minLength": 1, "maxLength": 253},
        "port": {"type": "integer", "format": "int32", "minimum": 1, "maximum": 65535},
        "protocol": {"type": "string", "minLength": 1, "maxLength": 255},
        "tls": open_object(),
        "allowedRoutes": {"type": "object", "default": {"namespaces": {"from": "Same"}}, "properties": {
            "kinds": kinds,
            "namespaces": namespaces,
        }},
    }});
    let spec = json!({"type": "object", "required": ["gatewayClassName", "listeners"],
        "x-kubernetes-preserve-unknown-fields": true, "properties": {
        "gatewayClassName": {"type": "string", "minLength": 1, "maxLength": 253},
        "listeners": {"type": "array", "items": listener, "minItems": 1, "maxItems": 64,
            "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]},
    }});
    let columns = [
        printer_column("Class", "string", ".spec.gatewayClassName"),
        printer_column("Address", "string", ".status.addresses[*].value"),
        printer_column("Programmed", "string", ".status.conditions[?(@.type==\"Programmed\")].status"),
    ];
    crd("Gateway", "gateways", &["gtw"], "v1", &spec, &columns)
}

/// Returns the CRD of HTTPRoute v1, without the defaults of the upstream CRD: gateways know them. Filters and references are not
/// validated here; gateways report them.
pub fn http_route_crd() -> Value {
    let open_list = json!({"type": "array", "items": open_object(), "x-kubernetes-list-type": "atomic"});
    let parent = json!({"type": "object", "required": ["name"], "properties": {
        "group": {"type": "string"},
        "kind": {"type": "string"},
        "namespace": {"type": "string"},
        "name": {"type": "string", "minLength": 1},
        "sectionName": {"type": "string"},
        "port": {"type": "integer", "format": "int32", "minimum": 1, "maximum": 65535},
    }});
    let backend = json!({"type": "object", "required": ["name"], "properties": {
        "group": {"type": "string"},
        "kind": {"type": "string"},
        "namespace": {"type": "string"},
        "name": {"type": "string", "minLength": 1},
        "port": {"type": "integer", "format": "int32", "minimum": 1, "maximum": 65535},
        "weight": {"type": "integer", "format": "int32", "minimum": 0, "maximum": 1_000_000},
        "filters": open_list,
    }});
    let value_match = |kinds: &[&str]| {
        json!({"type": "object", "required": ["name", "value"], "properties": {
            "name": {"type": "string"},
            "type": enum_schema(kinds, None),
            "value": {"type": "string"},
        }})
    };
    let value_matches = json!({"type": "array", "items": value_match(&["Exact", "RegularExpression"])});
    let request_match = json!({"type": "object", "properties": {
        "path": {"type": "object", "properties": {
            "type": enum_schema(&["Exact", "PathPrefix", "RegularExpression"], None),
            "value": {"type": "string", "maxLength": 1024},
        }},
        "method": enum_schema(
            &["GET", "HEAD", "POST", "PUT", "DELETE", "CONNECT", "OPTIONS", "TRACE", "PATCH"],
            None,
        ),
        "headers": value_matches,
        "queryParams": value_matches,
    }});
    let rule = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true, "properties": {
        "name": {"type": "string"},
        "matches": {"type": "array", "items": request_match, "maxItems": 64, "x-kubernetes-list-type": "atomic"},
        "filters": open_list,
        "backendRefs": {"type": "array", "items": backend, "maxItems": 16, "x-kubernetes-list-type": "atomic"},
        "timeouts": {"type": "object", "properties": {
            "request": {"type": "string", "pattern": "^([0-9]{1,5}(h|m|s|ms)){1,4}$"},
            "backendRequest": {"type": "string", "pattern": "^([0-9]{1,5}(h|m|s|ms)){1,4}$"},
        }},
    }});
    let spec = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true, "properties": {
        "parentRefs": {"type": "array", "items": parent, "maxItems": 32, "x-kubernetes-list-type": "atomic"},
        "hostnames": {"type": "array", "items": {"type": "string"}, "maxItems": 16},
        "rules": {"type": "array", "items": rule, "maxItems": 16, "x-kubernetes-list-type": "atomic"},
    }});
    crd("HTTPRoute", "httproutes", &[], "v1", &spec, &[printer_column("Hostnames", "string", ".spec.hostnames")])
}

/// Returns the CRD of ReferenceGrant v1beta1, the version that all releases serve.
pub fn reference_grant_crd() -> Value {
    let entry = |required: &[&str]| {
        json!({"type": "object", "required": required, "properties": {
            "group": {"type": "string"},
            "kind": {"type": "string"},
            "namespace": {"type": "string"},
            "name": {"type": "string"},
        }})
    };
    let list = |items: Value| json!({"type": "array", "items": items, "minItems": 1, "maxItems": 16});
    let spec = json!({"type": "object", "required": ["from", "to"], "properties": {
        "from": list(entry(&["group", "kind", "namespace"])),
        "to": list(entry(&["group", "kind"])),
    }});
    crd("ReferenceGrant", "referencegrants", &["refgrant"], "v1beta1", &spec, &[])
}

fn crd(kind: &str, plural: &str, short_names: &[&str], version: &str, spec: &Value, columns: &[Value]) -> Value {
    let age = printer_column("Age", "date", ".metadata.creationTimestamp");
    let columns: Vec<&Value> = columns.iter().chain([&age]).collect();
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {
            "name": format!("{plural}.gateway.networking.k8s.io"),
            "annotations": {"api-approved.kubernetes.io": "https://github.com/kubernetes-sigs/gateway-api/pull/4530"},
        },
        "spec": {
            "group": "gateway.networking.k8s.io",
            "scope": if kind == "GatewayClass" { "Cluster" } else { "Namespaced" },
            "names": {
                "kind": kind,
                "listKind": format!("{kind}List"),
                "plural": plural,
                "singular": kind.to_lowercase(),
                "shortNames": short_names,
                "categories": ["gateway-api"],
            },
            "versions": [{
                "name": version,
                "served": true,
                "storage": true,
                "schema": {"openAPIV3Schema": resource_schema(spec)},
                "subresources": {"status": {}},
                "additionalPrinterColumns": columns,
            }],
        },
    })
}
