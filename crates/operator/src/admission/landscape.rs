//! What exists beside an object, as far as rules between objects ask for it.

use std::collections::BTreeSet;

use api::lint::Finding;
use api::manifest::Document;
use api::{fusioninfer, ome};
use cluster::object::meta;
use serde_json::Value;

use super::offers::Offers;
use super::set_names::SetNames;
use super::{View, classes, counts};
use crate::kinds::{CLASS, CLUSTER_RUNTIME, ROLES_SERVICE, RUNTIME};

/// The objects that others are compared with.
#[derive(Clone, Debug, Default)]
pub struct Landscape {
    /// Names of the accelerator classes.
    classes: BTreeSet<String>,
    offers: Offers,
    set_names: SetNames,
}

impl Landscape {
    /// What `view` holds of the kinds that matter to `object`.
    pub(super) fn around(object: &Value, view: &dyn View) -> Self {
        let kind = object["kind"].as_str().unwrap_or_default();
        let mut landscape = Self::default();
        if object["apiVersion"] == fusioninfer::API_VERSION {
            let beside = view.list(ROLES_SERVICE).into_iter().filter(|one| {
                one["apiVersion"] == fusioninfer::API_VERSION && meta(one, "namespace") == meta(object, "namespace")
            });
            beside.for_each(|service| landscape.add(&service));
        }
        if object["apiVersion"] != ome::API_VERSION {
            return landscape;
        }
        if ["InferenceService", RUNTIME.kind, CLUSTER_RUNTIME.kind].contains(&kind) {
            view.list(CLASS).iter().for_each(|class| landscape.add(class));
        }
        if let Some(runtimes) = [RUNTIME, CLUSTER_RUNTIME].into_iter().find(|runtimes| runtimes.kind == kind) {
            view.list(runtimes).iter().for_each(|runtime| landscape.add(runtime));
        }
        landscape
    }

    /// Takes an object in; one that no rule asks for is passed over.
    pub fn add(&mut self, object: &Value) {
        self.set_names.add(object);
        if object["apiVersion"] != ome::API_VERSION {
            return;
        }
        match object["kind"].as_str().unwrap_or_default() {
            "AcceleratorClass" => {
                self.classes.extend(object["metadata"]["name"].as_str().map(str::to_owned));
            }
            "ServingRuntime" | "ClusterServingRuntime" => self.offers.add(object),
            _ => {}
        }
    }

    /// How an object stands to the others.
    #[must_use]
    pub fn check(&self, document: &Document) -> Vec<Finding> {
        let mut findings = self.offers.check(&document.value);
        findings.extend(self.set_names.check(&document.value));
        findings.extend(classes::unknown(document, &self.classes));
        if document.api_version() == ome::API_VERSION {
            findings.extend(counts::check(document));
        }
        findings
    }
}
