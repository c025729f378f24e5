//! Origin of merged values, so that a plan can show where each value comes from.

use serde::{Deserialize, Serialize};

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
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Setting {
    /// The field: `env TENSOR_PARALLEL_SIZE`, `args --tp-size`, `limits nvidia.com/gpu`, `nodeSelector zone`, `image`.
    pub field: String,
    /// The value in effect.
    pub value: String,
    /// The source of the value.
    pub origin: Origin,
    /// Values of weaker sources, the strongest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub overridden: Vec<OverriddenValue>,
}

/// A value that a stronger source overrides.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
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
    pub fn new(field: impl Into<String>, value: impl Into<String>, origin: Origin) -> Self {
        Self { field: field.into(), value: value.into(), origin, overridden: Vec::new() }
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
