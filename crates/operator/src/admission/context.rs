//! Context of the validation rules that compare an object with existing objects.

use std::collections::BTreeSet;

use api::{Document, Finding, fusioninfer, ome};
use cluster::metadata_field;
use serde_json::Value;

use super::object_lister::ObjectLister;
use super::runtime_conflicts::RuntimeFormats;
use super::workload_names::WorkloadNames;
use super::{accelerator_counts, class_references};
use crate::kinds::{ACCELERATOR_CLASS, CLUSTER_SERVING_RUNTIME, FUSIONINFER_SERVICE, SERVING_RUNTIME};

/// Existing objects that an object is validated against.
#[derive(Clone, Debug, Default)]
pub struct AdmissionContext {
    /// Names of the accelerator classes.
    classes: BTreeSet<String>,
    runtime_formats: RuntimeFormats,
    workload_names: WorkloadNames,
}

impl AdmissionContext {
    /// Creates a context of the existing objects that the rules for `object` need.
    pub(super) fn for_object(object: &Value, lister: &dyn ObjectLister) -> Self {
        let kind = object["kind"].as_str().unwrap_or_default();
        let mut context = Self::default();
        if object["apiVersion"] == fusioninfer::API_VERSION {
            let services = lister.list(FUSIONINFER_SERVICE).into_iter().filter(|service| {
                service["apiVersion"] == fusioninfer::API_VERSION
                    && metadata_field(service, "namespace") == metadata_field(object, "namespace")
            });
            services.for_each(|service| context.add(&service));
        }
        if object["apiVersion"] != ome::API_VERSION {
            return context;
        }
        if ["InferenceService", SERVING_RUNTIME.kind, CLUSTER_SERVING_RUNTIME.kind].contains(&kind) {
            lister.list(ACCELERATOR_CLASS).iter().for_each(|class| context.add(class));
        }
        if let Some(runtime_kind) =
            [SERVING_RUNTIME, CLUSTER_SERVING_RUNTIME].into_iter().find(|runtimes| runtimes.kind == kind)
        {
            lister.list(runtime_kind).iter().for_each(|runtime| context.add(runtime));
        }
        context
    }

    /// Adds an existing object; ignores an object that no rule needs.
    pub fn add(&mut self, object: &Value) {
        self.workload_names.add(object);
        if object["apiVersion"] != ome::API_VERSION {
            return;
        }
        match object["kind"].as_str().unwrap_or_default() {
            "AcceleratorClass" => {
                self.classes.extend(object["metadata"]["name"].as_str().map(str::to_owned));
            }
            "ServingRuntime" | "ClusterServingRuntime" => self.runtime_formats.add(object),
            _ => {}
        }
    }

    /// Returns the conflicts of a runtime with the existing ones of its scope. An error means that both are selected for the same
    /// models with the same priority.
    #[must_use]
    pub fn runtime_conflicts(&self, document: &Document) -> Vec<Finding> {
        self.runtime_formats.validate(&document.value)
    }

    /// Validates an object against the existing objects, but for the [conflicts](Self::runtime_conflicts) of runtimes.
    #[must_use]
    pub fn validate(&self, document: &Document) -> Vec<Finding> {
        let mut findings = self.workload_names.validate(&document.value);
        findings.extend(class_references::unknown_class_warnings(document, &self.classes));
        if document.api_version() == ome::API_VERSION {
            findings.extend(accelerator_counts::validate(document));
        }
        findings
    }
}
