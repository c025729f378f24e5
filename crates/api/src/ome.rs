//! `ome.io/v1beta1`: services, runtimes, models and accelerator classes (seeds 000 and 001).

mod accelerator;
mod class;
mod component;
mod model;
mod runtime;
mod service;

pub use accelerator::*;
pub use class::*;
pub use component::*;
pub use model::*;
pub use runtime::*;
pub use service::*;

/// The API group of every kind in this module.
pub const GROUP: &str = "ome.io";
/// The served API version.
pub const API_VERSION: &str = "ome.io/v1beta1";

/// Annotation that overrides the preferred classes of a service with one class.
pub const CLASS_ANNOTATION: &str = "ome.io/accelerator-class";
/// Annotation that overrides the selection strategy of a service.
pub const STRATEGY_ANNOTATION: &str = "ome.io/selection-strategy";
/// Annotation with the maximum cost of a class, in dollars per hour per replica.
pub const COST_THRESHOLD_ANNOTATION: &str = "ome.io/cost-threshold";

/// Deserializes an optional JSON object; rejects lists and scalars.
pub(crate) fn object<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Option<serde_json::Value>, D::Error> {
    use serde::Deserialize as _;
    let fields = Option::<serde_json::Map<String, serde_json::Value>>::deserialize(deserializer)?;
    Ok(fields.map(serde_json::Value::Object))
}
