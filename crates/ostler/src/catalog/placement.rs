//! Decides what a shipped model runs on, without knowledge of nodes.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{self, Write as _};

use anyhow::Result;
use api::Document;
use api::ome::{AcceleratorClass, InferenceService, InferenceServiceSpec, ModelRef, ServingRuntimeRef};
use decide::{AcceleratorCandidate, ClassEvaluation, ClassRejection, Eligibility, RuntimeCandidate, RuntimeRejection};
use plan::{Service, ServicePlan, Snapshot};

use super::CatalogKind;
use crate::report::table::table;

/// Plans services with the objects of the catalog.
pub(crate) struct Planner {
    snapshot: Snapshot,
    /// Accelerators of the vendor of the only class; `None` for several classes.
    platform: Option<Platform>,
}

/// A class, and the accelerators of its vendor.
#[derive(Default)]
struct Platform {
    class: String,
    vendor: String,
    classes: BTreeSet<String>,
    /// Features of any class, in lower case.
    features: BTreeSet<String>,
}

/// The runtime and the accelerators of a model.
pub(crate) struct Placement {
    pub(crate) runtime: String,
    pub(crate) class: String,
    pub(crate) accelerators_per_node: u32,
    pub(crate) nodes: u32,
    pub(crate) eligibility: Eligibility,
}

// === impl Planner ===

impl Planner {
    /// Reads the objects of the catalog, or others.
    pub(crate) fn new(documents: &[Document]) -> Result<Self> {
        Ok(Self { snapshot: Snapshot::from_documents(&[], documents)?, platform: None })
    }

    /// Reads the objects without the classes of other names.
    pub(crate) fn with_class(documents: &[Document], class: &str) -> Result<Self> {
        let mut planner = Self::new(documents)?;
        // The device of a partition determines its price.
        planner.snapshot.retain_class(class);
        Ok(Self { platform: Some(Platform::of_class(documents, class)?), ..planner })
    }

    /// Returns the placement of a service with this model.
    ///
    /// # Errors
    /// Why the model cannot be served.
    pub(crate) fn place(&self, model: &str) -> Result<Placement, String> {
        let plan = self.plan(model, None);
        placement(&plan).ok_or_else(|| self.rejection(&plan))
    }

    /// Returns the runtimes that can serve the model, and the classes on which they can: those that are selected, and those that
    /// serve only services that name them.
    pub(crate) fn runtimes(&self, model: &str) -> Vec<(String, BTreeSet<String>)> {
        let plan = self.plan(model, None);
        let runtimes = plan.candidates.iter().filter_map(|candidate| match candidate.rejected {
            None => Some(candidate.clone()),
            Some(RuntimeRejection::AutoSelectDisabled) => {
                let plan = self.plan(model, Some(&candidate.runtime));
                plan.candidates.iter().find(|named| named.runtime == candidate.runtime).cloned()
            }
            Some(_) => None,
        });
        let runtimes = runtimes.filter(|candidate| candidate.rejected.is_none());
        runtimes.map(|candidate| (candidate.runtime.clone(), eligible_classes(&candidate))).collect()
    }

    fn plan(&self, model: &str, runtime: Option<&str>) -> ServicePlan {
        let model = ModelRef { name: model.to_owned(), ..ModelRef::default() };
        let runtime = runtime.map(|name| ServingRuntimeRef { name: name.to_owned(), ..ServingRuntimeRef::default() });
        let spec = InferenceServiceSpec { model: Some(model), runtime, ..InferenceServiceSpec::default() };
        let service = Service::Ome(Box::new(InferenceService::new("model", spec)));
        plan::plan_service(&self.snapshot, &service)
    }

    /// Returns why the runtime that is closest to a match rejects the class, otherwise why no runtime serves the model. Runtimes for
    /// accelerators of other vendors explain nothing about the class.
    fn rejection(&self, plan: &ServicePlan) -> String {
        let of_runtime = |candidate: &RuntimeCandidate| {
            // Runtimes may name other classes.
            let is_class = |class: &&AcceleratorCandidate| {
                self.platform.as_ref().is_none_or(|platform| platform.class == class.class)
            };
            let classes = candidate.accelerators.iter().filter(is_class);
            let rejections = classes.filter_map(|class| match &class.evaluation {
                ClassEvaluation::Rejected(rejection) => Some(rejection),
                ClassEvaluation::Eligible(_) => None,
            });
            let is_for = |rejection: &&ClassRejection| {
                self.platform.as_ref().is_none_or(|platform| platform.is_target(rejection))
            };
            let reason = rejections.into_iter().find(is_for)?;
            Some(format!("{}: {reason}", candidate.runtime))
        };
        plan.candidates.iter().find_map(of_runtime).unwrap_or_else(|| match &self.platform {
            Some(platform) => format!("no shipped runtime serves the model on accelerators of {}", platform.vendor),
            None => plan.message.clone(),
        })
    }
}

// === impl Platform ===

impl Platform {
    /// Collects the classes with the vendor of `class`.
    fn of_class(documents: &[Document], class: &str) -> Result<Self> {
        let classes = documents.iter().filter(|document| CatalogKind::Classes.matches(document));
        let classes: Vec<(&str, AcceleratorClass)> =
            classes.map(|document| Ok((document.name(), document.parse()?))).collect::<Result<_>>()?;
        let vendor = classes.iter().find(|(name, _)| *name == class).and_then(|(_, class)| class.spec.vendor.clone());
        let mut platform =
            Self { class: class.to_owned(), vendor: vendor.clone().unwrap_or_default(), ..Self::default() };
        for (name, class) in classes.into_iter().filter(|(_, class)| class.spec.vendor == vendor) {
            platform.classes.insert(name.to_owned());
            platform.features.extend(class.spec.capabilities.features.iter().map(|feature| feature.to_lowercase()));
        }
        Ok(platform)
    }

    /// Returns whether the runtime that rejects a class is for accelerators of this vendor: it requires nothing that all of them lack.
    fn is_target(&self, rejection: &ClassRejection) -> bool {
        match rejection {
            ClassRejection::VendorMismatch { .. } | ClassRejection::ComputeCapabilityTooLow { offered: None, .. } => {
                false
            }
            ClassRejection::MissingFeature { missing } => {
                missing.iter().all(|feature| self.features.contains(&feature.to_lowercase()))
            }
            ClassRejection::NotSupportedByRuntime { supported } => {
                supported.iter().any(|class| self.classes.contains(class))
            }
            _ => true,
        }
    }
}

/// Returns the placement of the engine; `None` if the model cannot be served.
fn placement(plan: &ServicePlan) -> Option<Placement> {
    let (engine, runtime) = plan.components.get("engine").zip(plan.runtime.as_ref()).filter(|_| plan.feasible)?;
    let selected = plan.candidates.iter().filter(|candidate| candidate.selected);
    let classes = selected.flat_map(|candidate| candidate.accelerators.iter());
    let mut eligible = classes.filter_map(|candidate| match &candidate.evaluation {
        ClassEvaluation::Eligible(eligibility) if Some(&candidate.class) == engine.accelerator_class.as_ref() => {
            Some((candidate, eligibility))
        }
        _ => None,
    });
    let (candidate, eligibility) = eligible.next()?;
    Some(Placement {
        runtime: runtime.name.clone(),
        class: candidate.class.clone(),
        accelerators_per_node: engine.accelerators_per_node,
        nodes: engine.nodes,
        eligibility: eligibility.clone(),
    })
}

fn eligible_classes(candidate: &RuntimeCandidate) -> BTreeSet<String> {
    let classes = candidate.accelerators.iter();
    let eligible = classes.filter(|class| matches!(class.evaluation, ClassEvaluation::Eligible(_)));
    eligible.map(|class| class.class.clone()).collect()
}

/// Returns comments with the classes that a model runs on, cheapest first, and the reasons for the others; empty for other objects.
pub(crate) fn placement_comment(documents: &[Document], objects: &[&Document]) -> Result<String> {
    let Some(model) = objects.iter().find(|object| CatalogKind::Models.matches(object)) else {
        return Ok(String::new());
    };
    let mut placements = Vec::new();
    let mut rejections: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    // Other models do not matter.
    let is_other = |document: &&Document| CatalogKind::Models.matches(document) && document.name() != model.name();
    let supply: Vec<Document> = documents.iter().filter(|document| !is_other(document)).cloned().collect();
    for class in documents.iter().filter(|document| CatalogKind::Classes.matches(document)).map(Document::name) {
        match Planner::with_class(&supply, class)?.place(model.name()) {
            Ok(placement) => placements.push(placement),
            Err(reason) => rejections.entry(reason).or_default().push(class),
        }
    }
    placements.sort_by(|a, b| {
        let price = |placement: &Placement| placement.eligibility.price_per_hour.unwrap_or(f64::INFINITY);
        price(a).total_cmp(&price(b)).then_with(|| a.class.cmp(&b.class))
    });
    let row = |placement: &Placement| {
        let price = placement.eligibility.price_per_hour;
        let price = price.map_or_else(|| "no price".to_owned(), |price| format!("${price:.2}/h"));
        vec![placement.to_string(), price, placement.runtime.clone()]
    };
    let mut comment = String::new();
    for line in table(&["ACCELERATORS", "PRICE", "RUNTIME"], &placements.iter().map(row).collect::<Vec<_>>()).lines() {
        let _ = writeln!(comment, "# {line}");
    }
    for (reason, classes) in rejections {
        let _ = writeln!(comment, "# Not on {}: {reason}", classes.join(", "));
    }
    Ok(comment)
}

// === impl Placement ===

impl fmt::Display for Placement {
    /// Formats the accelerators of a replica: `8×nvidia-h100-80gb ×2`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}×{}", self.accelerators_per_node, self.class)?;
        if self.nodes > 1 { write!(f, " ×{}", self.nodes) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::super::documents;
    use super::*;

    /// No shipped runtime is without a shipped model.
    // spec: RT-84
    #[test]
    fn every_runtime_serves_a_shipped_model() {
        let documents = documents().unwrap();
        let planner = Planner::new(&documents).unwrap();
        let names = |kind: CatalogKind| {
            documents.iter().filter(move |document| kind.matches(document)).map(|document| document.name().to_owned())
        };
        let serving: BTreeSet<String> =
            names(CatalogKind::Models).flat_map(|model| planner.runtimes(&model)).map(|(runtime, _)| runtime).collect();
        let without_model: Vec<String> = names(CatalogKind::Runtimes).filter(|name| !serving.contains(name)).collect();
        assert_eq!(without_model, Vec::<String>::new());
    }

    #[rstest]
    #[case::too_old("gpt-oss-20b", "nvidia-t4", "vllm-gpt-oss: compute capability 8.0 is required; the class has 7.5")]
    #[case::feature_of_the_vendor("gpt-oss-20b", "amd-mi210", "vllm-amd-fp8: the class lacks feature fp8")]
    #[case::class_is_not_listed("qwen3-8b", "google-tpu-v4", "vllm-tpu: ")]
    #[case::other_architecture(
        "gpt-oss-20b",
        "intel-gaudi3",
        "no shipped runtime serves the model on accelerators of intel"
    )]
    #[case::no_runtime(
        "qwen3-8b",
        "huawei-ascend-910b3",
        "no shipped runtime serves the model on accelerators of huawei"
    )]
    fn explains_rejections(#[case] model: &str, #[case] class: &str, #[case] expected: &str) {
        let reason = Planner::with_class(&documents().unwrap(), class).unwrap().place(model).err().unwrap();
        assert!(reason.starts_with(expected), "{reason}");
    }
}
