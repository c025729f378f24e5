//! Accelerator classes that an object names and nobody defines.

use std::collections::BTreeSet;

use api::lint::Finding;
use api::manifest::Document;
use api::ome::{
    self, AcceleratorConfiguration, AcceleratorSelector, CLASS_ANNOTATION, Component, InferenceServiceSpec,
    ServingRuntimeSpec,
};

/// A path and the class named there.
type Named = (String, String);

/// Warnings about names that are not among `known`; none where nothing is known at all.
pub(super) fn unknown(document: &Document, known: &BTreeSet<String>) -> Vec<Finding> {
    if known.is_empty() {
        return Vec::new();
    }
    let lost = named(document).into_iter().filter(|(_, class)| !known.contains(class));
    lost.take(MOST)
        .map(|(path, class)| {
            let nearest = decide::nearest::nearest(&class, known.iter().map(String::as_str));
            let hint = match nearest {
                Some(nearest) => format!("did you mean `{nearest}`?"),
                None => {
                    "define the class, or see `kubectl get acceleratorclasses` and `ostler catalog list`".to_owned()
                }
            };
            let shown: String = class.chars().take(63).collect();
            Finding::warning(path, format!("no AcceleratorClass `{shown}`")).hint(hint)
        })
        .collect()
}

/// Names told of one object; whoever has more mistakes finds the rest after these.
const MOST: usize = 50;

fn named(document: &Document) -> Vec<Named> {
    if document.is(ome::API_VERSION, "ServingRuntime") {
        return document.parse::<ome::ServingRuntime>().map_or_else(|_| Vec::new(), |one| by_runtime(&one.spec));
    }
    if document.is(ome::API_VERSION, "ClusterServingRuntime") {
        return document.parse::<ome::ClusterServingRuntime>().map_or_else(|_| Vec::new(), |one| by_runtime(&one.spec));
    }
    if document.is(ome::API_VERSION, "InferenceService") {
        return document.parse::<ome::InferenceService>().map_or_else(
            |_| Vec::new(),
            |one| {
                let annotation = one.metadata.annotations.as_ref().and_then(|all| all.get(CLASS_ANNOTATION));
                let path = format!("metadata.annotations[{CLASS_ANNOTATION}]");
                let annotated = annotation.filter(|class| !class.is_empty()).map(|class| (path, class.clone()));
                annotated.into_iter().chain(by_service(&one.spec)).collect()
            },
        );
    }
    Vec::new()
}

fn by_runtime(runtime: &ServingRuntimeSpec) -> Vec<Named> {
    let mut named = Vec::new();
    if let Some(need) = &runtime.accelerator_requirements {
        let path = "spec.acceleratorRequirements";
        named.extend(list(&format!("{path}.supportedClasses"), &need.supported_classes));
        named.extend(list(&format!("{path}.acceleratorClasses"), &need.accelerator_classes));
        let preferred = need.preference_order.iter().enumerate();
        named.extend(
            preferred.map(|(index, one)| (format!("{path}.preferenceOrder[{index}].class"), one.class.clone())),
        );
    }
    for (index, entry) in runtime.supported_model_formats.iter().enumerate() {
        let path = format!("spec.supportedModelFormats[{index}].acceleratorConfig");
        named.extend(entry.accelerator_config.keys().map(|class| (format!("{path}.{class}"), class.clone())));
    }
    named.extend(configured("spec", &runtime.accelerator_configurations));
    named.extend(by_component("spec.engineConfig", runtime.engine_config.as_ref()));
    named.extend(by_component("spec.decoderConfig", runtime.decoder_config.as_ref()));
    named
}

fn by_service(service: &InferenceServiceSpec) -> Vec<Named> {
    let mut named = selected("spec.acceleratorSelector", service.accelerator_selector.as_ref());
    named.extend(by_component("spec.engine", service.engine.as_ref()));
    named.extend(by_component("spec.decoder", service.decoder.as_ref()));
    named
}

fn by_component(path: &str, component: Option<&Component>) -> Vec<Named> {
    let Some(component) = component else { return Vec::new() };
    let mut named = selected(&format!("{path}.acceleratorOverride"), component.accelerator_override.as_ref());
    named.extend(configured(path, &component.accelerator_configurations));
    named
}

fn selected(path: &str, selector: Option<&AcceleratorSelector>) -> Vec<Named> {
    let Some(selector) = selector else { return Vec::new() };
    let mut named = list(&format!("{path}.preferredClasses"), &selector.preferred_classes);
    named.extend(list(&format!("{path}.excludedClasses"), &selector.excluded_classes));
    named.extend(selector.accelerator_class.iter().map(|class| (format!("{path}.acceleratorClass"), class.clone())));
    named
}

fn configured(path: &str, configurations: &[AcceleratorConfiguration]) -> Vec<Named> {
    let at = |index: usize| format!("{path}.acceleratorConfigurations[{index}].selector.acceleratorClass");
    let all = configurations.iter().enumerate();
    all.map(|(index, one)| (at(index), one.selector.accelerator_class.clone())).collect()
}

fn list(path: &str, classes: &[String]) -> Vec<Named> {
    classes.iter().enumerate().map(|(index, class)| (format!("{path}[{index}]"), class.clone())).collect()
}
