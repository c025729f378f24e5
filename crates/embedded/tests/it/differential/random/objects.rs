//! Generators of complete, partial and invalid objects.

use proptest::prelude::*;
use serde_json::{Map, Value, json};

/// Kinds of the objects in sequences.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    ConfigMap,
    Secret,
    Service,
    Lease,
    Pod,
    Widget,
    /// Used only in dry runs, because controllers would update it.
    Deployment,
}

// === impl Kind ===

impl Kind {
    pub(super) fn any() -> impl Strategy<Value = Self> {
        prop_oneof![
            4 => Just(Self::ConfigMap),
            1 => Just(Self::Secret),
            2 => Just(Self::Service),
            1 => Just(Self::Lease),
            3 => Just(Self::Pod),
            5 => Just(Self::Widget),
            2 => Just(Self::Deployment),
        ]
    }

    /// Returns API version, kind and plural name.
    pub(super) fn names(self) -> (&'static str, &'static str, &'static str) {
        match self {
            Self::ConfigMap => ("v1", "ConfigMap", "configmaps"),
            Self::Secret => ("v1", "Secret", "secrets"),
            Self::Service => ("v1", "Service", "services"),
            Self::Lease => ("coordination.k8s.io/v1", "Lease", "leases"),
            Self::Pod => ("v1", "Pod", "pods"),
            Self::Widget => ("random.example.com/v1", "Widget", "widgets"),
            Self::Deployment => ("apps/v1", "Deployment", "deployments"),
        }
    }

    pub(super) fn collection(self) -> String {
        let (version, _, plural) = self.names();
        let root = if version.contains('/') { "apis" } else { "api" };
        format!("/{root}/{version}/namespaces/{{ns}}/{plural}")
    }

    /// Generates all fields except `apiVersion`, `kind` and `metadata`; most values are valid.
    fn content(self) -> BoxedStrategy<Map<String, Value>> {
        match self {
            Self::ConfigMap => members(vec![
                ("data", data(word()).boxed()),
                ("binaryData", data(Just(json!("AAE="))).boxed()),
                ("immutable", or_null(any::<bool>().prop_map(Value::from))),
            ])
            .prop_map(without_empty_maps)
            .boxed(),
            Self::Secret => members(vec![
                ("data", data(Just(json!("b2xk"))).boxed()),
                ("stringData", data(word()).boxed()),
                ("type", Just(json!("Opaque")).boxed()),
            ]),
            Self::Service => service(),
            Self::Lease => spec(members(vec![
                ("holderIdentity", word().boxed()),
                ("leaseDurationSeconds", number().boxed()),
                ("renewTime", Just(json!("2026-01-01T00:00:00.000000Z")).boxed()),
            ])),
            Self::Pod => pod().prop_map(|spec| Map::from_iter([("spec".to_owned(), spec)])).boxed(),
            Self::Widget => widget(),
            Self::Deployment => deployment(),
        }
    }
}

/// Removes empty maps, because Go distinguishes empty from absent maps and replacing one with the other is a change
/// that immutable objects forbid.
fn without_empty_maps(mut content: Map<String, Value>) -> Map<String, Value> {
    content.retain(|_, value| value.as_object().is_none_or(|map| !map.is_empty()));
    content
}

/// Removes nulls, because client libraries never send them in applied configurations.
pub(super) fn remove_nulls(value: &mut Value) {
    match value {
        Value::Object(members) => {
            members.retain(|_, member| !member.is_null());
            members.values_mut().for_each(remove_nulls);
        }
        Value::Array(items) => items.iter_mut().for_each(remove_nulls),
        _ => {}
    }
}

/// Generates a complete object.
pub(super) fn object(kind: Kind, name: &'static str) -> impl Strategy<Value = Value> {
    (metadata(name), kind.content()).prop_map(move |(metadata, content)| {
        let (version, kind, _) = kind.names();
        let mut object = json!({"apiVersion": version, "kind": kind, "metadata": metadata});
        object.as_object_mut().unwrap().extend(content);
        object
    })
}

/// Generates a patch.
pub(super) fn partial_object(kind: Kind) -> impl Strategy<Value = Value> {
    (prop::option::weighted(0.4, metadata("")), kind.content()).prop_map(|(metadata, content)| {
        let mut partial_object = Value::Object(content);
        if let Some(metadata) = metadata {
            partial_object["metadata"] = metadata;
        }
        partial_object
    })
}

fn metadata(name: &'static str) -> impl Strategy<Value = Value> {
    let content = members(vec![
        ("labels", labels().boxed()),
        ("annotations", or_null(data(word()))),
        ("finalizers", or_null(prop::sample::select(vec![json!([]), json!(["example.com/hold"]), json!(["bad"])]))),
    ]);
    content.prop_map(move |mut content| {
        if !name.is_empty() {
            content.insert("name".to_owned(), json!(name));
        }
        Value::Object(content)
    })
}

fn labels() -> impl Strategy<Value = Value> {
    prop::sample::select(vec![
        json!({"app": "x"}),
        json!({"app": "y"}),
        json!({"app": "x", "tier": "front"}),
        json!({"app": null}),
        json!({}),
        json!({"app": "not a value"}),
    ])
}

fn service() -> BoxedStrategy<Map<String, Value>> {
    let ports = prop::sample::subsequence(
        vec![
            json!({"port": 80, "name": "http"}),
            json!({"port": 90, "name": "metrics", "targetPort": "m"}),
            json!({"port": 80, "protocol": "UDP", "name": "udp"}),
            json!({"port": 70}),
            json!({"port": 70, "name": "http", "appProtocol": "http"}),
        ],
        0..4,
    );
    spec(members(vec![
        ("ports", ports.prop_map(Value::from).boxed()),
        ("selector", labels().boxed()),
        ("type", or_null(prop::sample::select(vec![json!("ClusterIP"), json!("NodeType"), json!(null)]))),
        ("clusterIP", or_null(Just(json!("None")))),
        ("sessionAffinity", or_null(prop::sample::select(vec![json!("None"), json!("ClientIP"), json!("Nobody")]))),
        ("publishNotReadyAddresses", or_null(any::<bool>().prop_map(Value::from))),
    ]))
}

/// Generates a PodSpec with an unknown scheduler, so that no controller updates the Pod.
fn pod() -> impl Strategy<Value = Value> {
    let container = |name: &'static str| {
        members(vec![
            ("image", prop::sample::select(vec![json!("a:1"), json!("a:2"), json!("b")]).boxed()),
            ("env", or_null(environment())),
            ("ports", or_null(Just(json!([{"containerPort": 80}, {"containerPort": 90, "name": "m"}])))),
            ("args", or_null(Just(json!(["--model", "m"])))),
            ("resources", or_null(Just(json!({"limits": {"cpu": "1500m", "memory": "1024Mi"}})))),
            ("imagePullPolicy", or_null(prop::sample::select(vec![json!("Always"), json!("Sometimes")]))),
        ])
        .prop_map(move |mut members| {
            members.insert("name".to_owned(), json!(name));
            members.entry("image").or_insert(json!("a:1"));
            Value::Object(members)
        })
    };
    let containers = prop_oneof![
        6 => container("main").prop_map(|main| vec![main]),
        3 => (container("main"), container("side")).prop_map(|(main, side)| vec![main, side]),
        1 => Just(Vec::new()),
    ];
    let volumes = prop::sample::subsequence(
        vec![
            json!({"name": "e", "emptyDir": {}}),
            json!({"name": "c", "configMap": {"name": "c"}}),
            json!({"name": "e"}),
        ],
        0..3,
    );
    let rest = members(vec![
        ("volumes", or_null(volumes.prop_map(Value::from))),
        ("restartPolicy", or_null(prop::sample::select(vec![json!("Never"), json!("Sometimes")]))),
        ("terminationGracePeriodSeconds", or_null(number())),
        ("tolerations", or_null(Just(json!([{"key": "k", "operator": "Exists"}])))),
        ("nodeSelector", or_null(labels())),
        ("priority", or_null(Just(json!(0)))),
    ]);
    (containers, rest).prop_map(|(containers, mut spec)| {
        spec.insert("containers".to_owned(), Value::from(containers));
        spec.insert("schedulerName".to_owned(), json!("unknown"));
        Value::Object(spec)
    })
}

fn environment() -> impl Strategy<Value = Value> {
    prop::sample::select(vec![
        json!([{"name": "A", "value": "1"}]),
        json!([{"name": "B", "value": ""}, {"name": "A", "value": "2"}]),
        json!([{"name": "N", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}]),
        json!([]),
    ])
}

fn deployment() -> BoxedStrategy<Map<String, Value>> {
    let template = pod().prop_map(|pod| json!({"metadata": {"labels": {"app": "x"}}, "spec": pod})).boxed();
    spec(members(vec![
        ("replicas", number().boxed()),
        (
            "strategy",
            or_null(prop::sample::select(vec![json!({"type": "Recreate"}), json!({"rollingUpdate": {"maxSurge": 1}})])),
        ),
        ("paused", or_null(any::<bool>().prop_map(Value::from))),
        ("minReadySeconds", or_null(number())),
        ("template", template),
        ("selector", Just(json!({"matchLabels": {"app": "x"}})).boxed()),
    ]))
}

fn widget() -> BoxedStrategy<Map<String, Value>> {
    let parts = prop::sample::subsequence(
        vec![
            json!({"id": "x"}),
            json!({"id": "y", "weight": 3}),
            json!({"id": "x", "weight": null}),
            json!({"weight": 1}),
            json!({"id": "z", "bogus": 1}),
        ],
        0..4,
    );
    let tags = prop::sample::subsequence(vec![json!("a"), json!("b"), json!("a"), json!(1)], 0..3);
    let spec = spec(members(vec![
        ("size", prop_oneof![8 => (1..9_i64).prop_map(Value::from), 1 => any_type()].boxed()),
        ("replicas", or_null(number())),
        ("color", prop::sample::select(vec![json!("red"), json!("green"), json!("blue"), json!(null)]).boxed()),
        ("name", or_null(prop::sample::select(vec![json!("abc"), json!("root"), json!("toolong"), json!("A")]))),
        ("frozen", or_null(word())),
        ("free", or_null(any_type())),
        ("tags", or_null(tags.prop_map(Value::from))),
        ("parts", parts.prop_map(Value::from).boxed()),
        ("port", or_null(prop::sample::select(vec![json!(80), json!("http"), json!(1.5), json!(true)]))),
        ("ratio", or_null(prop::sample::select(vec![json!(1), json!(1.0), json!(0.5), json!(1e3), json!("1")]))),
        ("when", or_null(prop::sample::select(vec![json!("2026-01-01T00:00:00Z"), json!("yesterday")]))),
        ("bogus", or_null(any_type())),
    ]));
    (spec, prop::option::weighted(0.2, status()))
        .prop_map(|(mut content, status)| {
            content.extend(status.map(|status| ("status".to_owned(), status)));
            content
        })
        .boxed()
}

/// Generates the status of a Widget.
pub(super) fn status() -> impl Strategy<Value = Value> {
    members(vec![
        ("replicas", number().boxed()),
        ("phase", word().boxed()),
        ("selector", Just(json!("app=x")).boxed()),
        ("bogus", or_null(any_type())),
    ])
    .prop_map(Value::Object)
}

/// Returns the definition of Widgets, with a field for each feature of schemas.
pub(super) fn definition() -> Value {
    let part_schema = json!({"type": "object", "required": ["id"], "properties": {
        "id": {"type": "string"}, "weight": {"type": "integer", "default": 7}}});
    let spec = json!({
        "type": "object", "required": ["size"],
        "properties": {
            "size": {"type": "integer", "minimum": 1, "maximum": 1000},
            "replicas": {"type": "integer", "default": 2},
            "color": {"type": "string", "enum": ["red", "green"], "default": "red"},
            "name": {"type": "string", "maxLength": 5, "pattern": "^[a-z]+$"},
            "frozen": {"type": "string", "maxLength": 20,
                "x-kubernetes-validations": [{"rule": "self == oldSelf", "message": "may not change"}]},
            "free": {"type": "object", "nullable": true, "x-kubernetes-preserve-unknown-fields": true},
            "tags": {"type": "array", "x-kubernetes-list-type": "set", "maxItems": 9, "items": {"type": "string"}},
            "parts": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["id"],
                "maxItems": 9, "items": part_schema},
            "port": {"x-kubernetes-int-or-string": true},
            "ratio": {"type": "number", "maximum": 100},
            "when": {"type": "string", "format": "date-time"},
        },
        "x-kubernetes-validations": [
            {"rule": "self.size >= oldSelf.size", "message": "size may not shrink"},
            {"rule": "!has(self.name) || self.name != 'root'", "message": "root is taken", "fieldPath": ".name",
                "reason": "FieldValueForbidden"},
        ],
    });
    let status = json!({"type": "object", "properties": {
        "replicas": {"type": "integer"}, "selector": {"type": "string"}, "phase": {"type": "string"}}});
    let schema = json!({"type": "object", "required": ["spec"], "properties": {"spec": spec, "status": status}});
    let scale = json!({"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas",
        "labelSelectorPath": ".status.selector"});
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "widgets.random.example.com"},
        "spec": {"group": "random.example.com", "scope": "Namespaced", "names": {"plural": "widgets", "kind": "Widget"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema},
                "subresources": {"status": {}, "scale": scale}, "selectableFields": [{"jsonPath": ".spec.color"}]}]},
    })
}

fn spec(members: BoxedStrategy<Map<String, Value>>) -> BoxedStrategy<Map<String, Value>> {
    members.prop_map(|members| Map::from_iter([("spec".to_owned(), Value::Object(members))])).boxed()
}

/// Generates an object with a subset of the fields.
fn members(fields: Vec<(&'static str, BoxedStrategy<Value>)>) -> BoxedStrategy<Map<String, Value>> {
    let selected: Vec<_> = fields
        .into_iter()
        .map(|(name, value)| prop::option::weighted(0.6, value).prop_map(move |value| Some((name.to_owned(), value?))))
        .collect();
    selected.prop_map(|selected| selected.into_iter().flatten().collect()).boxed()
}

/// Generates a value or, with a small probability, null.
fn or_null(value: impl Strategy<Value = Value> + 'static) -> BoxedStrategy<Value> {
    // Setting null gives up the ownership of the field, as does omitting it, which `members` covers.
    prop_oneof![12 => value, 1 => Just(Value::Null)].boxed()
}

fn data(value: impl Strategy<Value = Value> + Clone + 'static) -> impl Strategy<Value = Value> {
    let key = prop_oneof![10 => Just("k"), 8 => Just("l"), 1 => Just("bad key")];
    prop::collection::btree_map(key, value, 0..3)
        .prop_map(|map| Value::Object(map.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()))
}

fn word() -> impl Strategy<Value = Value> + Clone {
    prop_oneof![
        6 => prop::sample::select(vec!["1", "2", "three"]).prop_map(Value::from),
        1 => Just(json!("")),
        1 => Just(Value::Null),
        1 => Just(json!(1)),
    ]
}

fn number() -> impl Strategy<Value = Value> {
    prop_oneof![8 => (0..4_i64).prop_map(Value::from), 1 => Just(json!(-1)), 1 => any_type()]
}

/// Generates a value of an arbitrary type.
fn any_type() -> impl Strategy<Value = Value> {
    prop::sample::select(vec![
        json!(null),
        json!("text"),
        json!(7),
        json!(true),
        json!([]),
        json!({}),
        json!({"any": "thing"}),
        json!([1]),
    ])
}
