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
/// The one version served.
pub const API_VERSION: &str = "ome.io/v1beta1";

/// Annotation that replaces a service's preferred classes by one.
pub const CLASS_ANNOTATION: &str = "ome.io/accelerator-class";
/// Annotation that replaces a service's strategy.
pub const STRATEGY_ANNOTATION: &str = "ome.io/selection-strategy";
/// Annotation with the dollars per hour and replica that a class should not exceed.
pub const COST_THRESHOLD_ANNOTATION: &str = "ome.io/cost-threshold";

/// Reads an optional object and refuses lists and scalars where a Kubernetes object belongs.
pub(crate) fn object<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Option<serde_json::Value>, D::Error> {
    use serde::Deserialize as _;
    let fields = Option::<serde_json::Map<String, serde_json::Value>>::deserialize(deserializer)?;
    Ok(fields.map(serde_json::Value::Object))
}
