//! One component of a service on one runtime, about to be matched with classes.

use std::borrow::Cow;
use std::collections::BTreeSet;

use crate::configuration::Configuration;
use crate::demand::{Capabilities, ComponentDemand, Model};
use crate::supply::{Requirements, RuntimeComponent};

/// All that classes are judged by.
pub struct Case<'a> {
    /// `None` where nothing is known of it, or a service that brings its own engine says itself what fits (Story 8).
    pub model: Option<&'a Model>,
    /// Bytes that the model's weights take; `None` where they need not fit.
    pub weights: Option<u64>,
    pub component: &'a ComponentDemand,
    pub requirements: &'a Requirements,
    pub offer: &'a RuntimeComponent,
    /// Tuning per class, weakest layer first: runtime, matching format entry, its component, the service's component.
    pub configurations: [&'a [Configuration]; 4],
    /// What runtime and service require together.
    pub need: Cow<'a, Capabilities>,
    /// Resource names that stand for accelerators.
    pub resources: &'a BTreeSet<String>,
}

impl Case<'_> {
    /// Replicas that the service starts with.
    #[must_use]
    pub fn replicas(&self) -> u32 {
        self.component.min_replicas.or(self.offer.min_replicas).unwrap_or(1)
    }
}
