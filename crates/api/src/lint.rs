//! Findings about manifests.
