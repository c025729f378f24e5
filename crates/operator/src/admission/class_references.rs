//! Detects references to accelerator classes that do not exist.

use std::collections::BTreeSet;

use api::ome::{
    self, AcceleratorConfiguration, AcceleratorSelector, CLASS_ANNOTATION, Component, InferenceServiceSpec,
    ServingRuntimeSpec,
};
use api::{Document, Finding};

/// Field path and the referenced class.
type ClassReference = (String, String);

/// Returns warnings about references to unknown classes; none if no class is known.
pub(super) fn unknown_class_warnings(document: &Document, known_classes: &BTreeSet<String>) -> Vec<Finding> {
    if known_classes.is_empty() {
        return Vec::new();
    }
    let unknown_references = class_references(document).into_iter().filter(|(_, class)| !known_classes.contains(class));
    unknown_references.take(MAX_REPORTED)
        .map(|(path, class)| {
            let nearest = decide::nearest_name(&class, known_classes.iter().map(String::as_str));
            let hint = match nearest {
                Some(nearest) => format!("did you mean `{nearest}`?"),
                None => {
                    "create the class, or list the existing ones with `kubectl get acceleratorclasses` or `ostler catalog list`".to_owned()
                }
            };
            let truncated_name: String = class.chars().take(63).collect();
            Finding::warning(path, format!("AcceleratorClass `{truncated_name}` does not exist")).with_hint(hint)
        })
        .collect()
}

/// Maximum number of reported references per object.
const MAX_REPORTED: usize = 50;

fn class_references(document: &Document) -> Vec<ClassReference> {
    if document.is_kind(ome::API_VERSION, "ServingRuntime") {
        return document
            .parse::<ome::ServingRuntime>()
            .map_or_else(|_| Vec::new(), |object| runtime_references(&object.spec));
    }
    if document.is_kind(ome::API_VERSION, "ClusterServingRuntime") {
        return document
            .parse::<ome::ClusterServingRuntime>()
            .map_or_else(|_| Vec::new(), |object| runtime_references(&object.spec));
    }
    if document.is_kind(ome::API_VERSION, "InferenceService") {
        return document.parse::<ome::InferenceService>().map_or_else(
            |_| Vec::new(),
            |object| {
                let annotation =
                    object.metadata.annotations.as_ref().and_then(|annotations| annotations.get(CLASS_ANNOTATION));
                let path = format!("metadata.annotations[{CLASS_ANNOTATION}]");
                let annotation_reference =
                    annotation.filter(|class| !class.is_empty()).map(|class| (path, class.clone()));
                annotation_reference.into_iter().chain(service_references(&object.spec)).collect()
            },
        );
    }
    Vec::new()
}

fn runtime_references(runtime: &ServingRuntimeSpec) -> Vec<ClassReference> {
    let mut class_references = Vec::new();
    if let Some(need) = &runtime.accelerator_requirements {
        let path = "spec.acceleratorRequirements";
        class_references.extend(list_references(&format!("{path}.supportedClasses"), &need.supported_classes));
        class_references.extend(list_references(&format!("{path}.acceleratorClasses"), &need.accelerator_classes));
        let preferences = need.preference_order.iter().enumerate();
        class_references.extend(
            preferences.map(|(index, preference)| {
                (format!("{path}.preferenceOrder[{index}].class"), preference.class.clone())
            }),
        );
    }
    for (index, entry) in runtime.supported_model_formats.iter().enumerate() {
        let path = format!("spec.supportedModelFormats[{index}].acceleratorConfig");
        class_references
            .extend(entry.accelerator_config.keys().map(|class| (format!("{path}.{class}"), class.clone())));
    }
    class_references.extend(configuration_references("spec", &runtime.accelerator_configurations));
    class_references.extend(component_references("spec.engineConfig", runtime.engine_config.as_ref()));
    class_references.extend(component_references("spec.decoderConfig", runtime.decoder_config.as_ref()));
    class_references
}

fn service_references(service: &InferenceServiceSpec) -> Vec<ClassReference> {
    let mut class_references = selector_references("spec.acceleratorSelector", service.accelerator_selector.as_ref());
    class_references.extend(component_references("spec.engine", service.engine.as_ref()));
    class_references.extend(component_references("spec.decoder", service.decoder.as_ref()));
    class_references
}

fn component_references(path: &str, component: Option<&Component>) -> Vec<ClassReference> {
    let Some(component) = component else { return Vec::new() };
    let mut class_references =
        selector_references(&format!("{path}.acceleratorOverride"), component.accelerator_override.as_ref());
    class_references.extend(configuration_references(path, &component.accelerator_configurations));
    class_references
}

fn selector_references(path: &str, selector: Option<&AcceleratorSelector>) -> Vec<ClassReference> {
    let Some(selector) = selector else { return Vec::new() };
    let mut class_references = list_references(&format!("{path}.preferredClasses"), &selector.preferred_classes);
    class_references.extend(list_references(&format!("{path}.excludedClasses"), &selector.excluded_classes));
    class_references
        .extend(selector.accelerator_class.iter().map(|class| (format!("{path}.acceleratorClass"), class.clone())));
    class_references
}

fn configuration_references(path: &str, configurations: &[AcceleratorConfiguration]) -> Vec<ClassReference> {
    let selector_path = |index: usize| format!("{path}.acceleratorConfigurations[{index}].selector.acceleratorClass");
    let indexed_configurations = configurations.iter().enumerate();
    indexed_configurations
        .map(|(index, configuration)| (selector_path(index), configuration.selector.accelerator_class.clone()))
        .collect()
}

fn list_references(path: &str, classes: &[String]) -> Vec<ClassReference> {
    classes.iter().enumerate().map(|(index, class)| (format!("{path}[{index}]"), class.clone())).collect()
}
