//! The Kubernetes version that the server reports.

/// Kubernetes version reported to clients; kubectl 1.32 to 1.34 are within the supported skew.
pub const KUBERNETES_VERSION: &str = "v1.33.4";
