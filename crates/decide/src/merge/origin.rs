//! Who said a value, so that a plan can name the origin of everything it renders.

use serde::{Deserialize, Serialize};

/// Who stated a value, weakest first (seed 000, "Override Precedence").
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Origin {
    /// ostler, where nobody else says anything: `MODEL_PATH`, the container's name.
    Ostler,
    /// The serving runtime's template.
    Runtime,
    /// The accelerator class itself: which nodes, which resource name.
    Class,
    /// An `acceleratorConfigurations` entry for the class, wherever it stands.
    Configuration,
    /// The service's spec.
    Service,
    /// An annotation of the service.
    Annotation,
}

impl Origin {
    /// As a person reads it.
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

/// One value of the merged result.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Setting {
    /// `env TENSOR_PARALLEL_SIZE`, `args --tp-size`, `limits nvidia.com/gpu`, `nodeSelector zone`, `image`.
    pub field: String,
    pub value: String,
    pub origin: Origin,
    /// What others said, the strongest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub overridden: Vec<OverriddenValue>,
}

/// A value that did not win.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OverriddenValue {
    pub origin: Origin,
    pub value: String,
}

impl Setting {
    #[must_use]
    pub fn new(field: impl Into<String>, value: impl Into<String>, origin: Origin) -> Self {
        Self { field: field.into(), value: value.into(), origin, overridden: Vec::new() }
    }

    /// A stronger source says `value`; what stood here becomes what was overridden. Saying the same again changes only
    /// who says it.
    pub fn override_with(&mut self, value: String, origin: Origin) {
        let before = OverriddenValue { origin: self.origin, value: std::mem::replace(&mut self.value, value) };
        if before.value != self.value {
            self.overridden.insert(0, before);
        }
        self.origin = origin;
    }
}

/// What the three sources of a container say about one thing, weakest first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sources<T> {
    pub runtime: T,
    pub configuration: T,
    pub service: T,
}

impl<T> Sources<T> {
    /// Weakest first, each with its origin.
    pub fn in_order(&self) -> [(Origin, &T); 3] {
        [
            (Origin::Runtime, &self.runtime),
            (Origin::Configuration, &self.configuration),
            (Origin::Service, &self.service),
        ]
    }
}
