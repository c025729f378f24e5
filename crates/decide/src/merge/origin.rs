//! Origin of merged values, so that a plan can show where each value comes from.

use std::fmt;

use serde::{Deserialize, Serialize, Serializer};

/// The source of a value, weakest first (seed 000, "Override Precedence").
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Origin {
    /// A default of ostler, such as `MODEL_PATH` or the container name.
    Ostler,
    /// The serving runtime's template.
    Runtime,
    /// The accelerator class: node selector and resource name.
    Class,
    /// An `acceleratorConfigurations` entry for the class, of any layer.
    Configuration,
    /// The service's spec.
    Service,
    /// An annotation of the service.
    Annotation,
}

/// A merged value.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Setting {
    /// The field.
    pub field: SettingField,
    /// The value in effect.
    pub value: String,
    /// The source of the value.
    pub origin: Origin,
    /// Values of weaker sources, the strongest first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub overridden: Vec<OverriddenValue>,
}

/// The field of a setting, serialized as text: `args --tp-size`, `limits nvidia.com/gpu`, `image`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SettingField {
    /// A flag of the command line, as its source spells it.
    Flag(String),
    /// An environment variable.
    Env(String),
    /// The request for a resource.
    Request(String),
    /// The limit of a resource.
    Limit(String),
    /// A label that nodes must have.
    NodeSelector(String),
    /// Another field of the container, the Pod or the component.
    Named(String),
    /// A field of the worker Pods that differs from the leader's.
    Worker(Box<SettingField>),
}

/// A value that a stronger source overrides.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct OverriddenValue {
    /// The source of the value.
    pub origin: Origin,
    /// The value.
    pub value: String,
}

/// Values from the three sources of a container, in order of increasing precedence.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sources<T> {
    /// The runtime.
    pub runtime: T,
    /// The accelerator configuration.
    pub configuration: T,
    /// The service.
    pub service: T,
}

// === impl Origin ===

impl Origin {
    /// Returns the name for messages.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Ostler => "ostler",
            Self::Runtime => "runtime",
            Self::Class => "accelerator class",
            Self::Configuration => "accelerator configuration",
            Self::Service => "service",
            Self::Annotation => "annotation",
        }
    }
}

// === impl Setting ===

impl Setting {
    /// Creates a setting that overrides nothing.
    #[must_use]
    pub fn new(field: SettingField, value: impl Into<String>, origin: Origin) -> Self {
        Self { field, value: value.into(), origin, overridden: Vec::new() }
    }

    /// Overrides the value with that of a stronger source. An equal value only changes the origin.
    pub fn override_with(&mut self, value: String, origin: Origin) {
        let previous = OverriddenValue { origin: self.origin, value: std::mem::replace(&mut self.value, value) };
        if previous.value != self.value {
            self.overridden.insert(0, previous);
        }
        self.origin = origin;
    }
}

// === impl SettingField ===

impl SettingField {
    /// Creates a field that has only a name, such as `image`.
    #[must_use]
    pub fn named(name: impl Into<String>) -> Self {
        Self::Named(name.into())
    }
}

impl fmt::Display for SettingField {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Flag(flag) => write!(f, "args {flag}"),
            Self::Env(name) => write!(f, "env {name}"),
            Self::Request(resource) => write!(f, "requests {resource}"),
            Self::Limit(resource) => write!(f, "limits {resource}"),
            Self::NodeSelector(label) => write!(f, "nodeSelector {label}"),
            Self::Named(name) => f.write_str(name),
            Self::Worker(field) => write!(f, "worker {field}"),
        }
    }
}

impl Serialize for SettingField {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

// === impl Sources ===

impl<T> Sources<T> {
    /// Returns the values with their origins, weakest first.
    pub fn in_order(&self) -> [(Origin, &T); 3] {
        [
            (Origin::Runtime, &self.runtime),
            (Origin::Configuration, &self.configuration),
            (Origin::Service, &self.service),
        ]
    }
}
