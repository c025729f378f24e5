//! Generates `docs/catalogue.md`, the placement of each shipped model, and checks that it is current.

use std::fmt::Write as _;
use std::path::Path;

use api::ome::ClusterBaseModel;
use decide::{DisplayCount, MemoryBudget, Reserve};

use super::placement::{Placement, Planner};
use super::{CatalogKind, documents};
use crate::gpus::HostAccelerators;
use crate::node_groups;

/// Path of the page, relative to this crate.
const PAGE: &str = "../../docs/catalogue.md";
/// Environment variable; if set, the page is generated instead of compared.
const WRITE_VARIABLE: &str = "OSTLER_WRITE_DOCS";
/// Nodes of the mixed fleet.
const FLEET: &str =
    "8×H100-80G ×2, 8×H200-141G, 8×B200, 8×A100-80G, 4×L40S-48G, 4×L4-24G, 8×MI300X, 8×MI325X, 8×Gaudi3, 8×TPU-v6e";
/// Classes of the second table.
const CLASSES: [&str; 7] =
    ["nvidia-l4", "nvidia-l40s", "nvidia-h100-80gb", "nvidia-b200", "amd-mi300x", "intel-gaudi3", "google-tpu-v6e"];

const INTRODUCTION: &str = "# Catalog of models

The models that ostler ships, and what `ostler plan` selects for a service that names only the model. `ostler catalog show NAME`
prints a model with its sources.

Generated from the catalog: `OSTLER_WRITE_DOCS=1 cargo test -p ostler --bin ostler catalog::page_tests`.
";

const FLEET_NOTE: &str = "
Memory is that of one accelerator in GB: what the engine may use, weights, the KV cache of one sequence and its tokens, and
activations. A class is selected if the complete context of one sequence fits; an engine that reduces the context to its memory also
runs with 20 % of the weights for KV cache and activations, and \"of\" names the context of the model. \"Sequences\" is how many of
these tokens the KV cache holds at a time. \"20 %\" is an estimate for a model whose dimensions have no source. Prices are list
prices per replica and hour; some classes have none.
";

const CLASSES_NOTE: &str = "
Accelerators of one replica if the fleet has only this product, with any number of accelerators per node up to eight; \"–\" if no
shipped runtime serves the model on it, or the model does not fit. `ostler catalog show NAME` states the reason.
";

#[test]
fn page_matches_the_catalog() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(PAGE);
    let expected = page();
    if std::env::var_os(WRITE_VARIABLE).is_some() {
        std::fs::write(&path, &expected).unwrap();
    }
    let actual = std::fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(actual, expected, "docs/catalogue.md is outdated: set {WRITE_VARIABLE}=1 and run this test again");
}

fn page() -> String {
    let shipped = documents().unwrap();
    let entries = node_groups::parse(FLEET).unwrap();
    let nodes = node_groups::to_nodes(&entries, &HostAccelerators::default());
    let nodes = nodes.into_iter().map(|value| api::Document { source: "fleet".to_owned(), index: 1, value });
    let fleet = Planner::new(&shipped.iter().cloned().chain(nodes).collect::<Vec<_>>()).unwrap();
    let products = CLASSES.map(|class| Planner::with_class(&shipped, class).unwrap());
    let mut models: Vec<_> = shipped.iter().filter(|document| CatalogKind::Models.matches(document)).collect();
    models.sort_by_key(|document| document.name());
    assert!(models.len() >= 80, "{}", models.len());

    let mut page = INTRODUCTION.to_owned();
    let _ = write!(page, "\n## Mixed fleet\n\nNodes: `{FLEET}`.\n{FLEET_NOTE}\n");
    page += "| Model | Parameters | Quantization | Runtime | Accelerators | Usable | Weights | KV cache | Sequences | Activations | $/h |\n";
    page += "|---|---|---|---|---|---|---|---|---|---|---|\n";
    for model in &models {
        let spec = model.parse::<ClusterBaseModel>().unwrap().spec.0;
        let parameters = spec.model_parameter_size.map_or("–".to_owned(), |size| DisplayCount(size.0).to_string());
        let quantization = spec.quantization.as_deref().unwrap_or("–");
        let placement = match fleet.place(model.name()) {
            Ok(placement) => fleet_cells(&placement),
            Err(reason) => panic!("{}: {reason}", model.name()),
        };
        let _ = writeln!(page, "| `{}` | {parameters} | {quantization} | {placement} |", model.name());
    }
    let _ = write!(page, "\n## One product\n{CLASSES_NOTE}\n| Model | {} |\n", CLASSES.join(" | "));
    let _ = writeln!(page, "|---|{}", "---|".repeat(CLASSES.len()));
    for model in &models {
        let count = |planner: &Planner| match planner.place(model.name()) {
            Ok(placement) if placement.nodes > 1 => {
                format!("{}×{}", placement.nodes, placement.accelerators_per_node)
            }
            Ok(placement) => placement.accelerators_per_node.to_string(),
            Err(_) => "–".to_owned(),
        };
        let _ =
            writeln!(page, "| `{}` | {} |", model.name(), products.iter().map(count).collect::<Vec<_>>().join(" | "));
    }
    page
}

fn fleet_cells(placement: &Placement) -> String {
    let price = placement.eligibility.price_per_hour.map_or("–".to_owned(), |price| format!("{price:.2}"));
    let budget = placement.eligibility.memory.as_ref().map_or("– | – | – | – | –".to_owned(), budget_cells);
    format!("`{}` | {placement} | {budget} | {price}", placement.runtime)
}

fn budget_cells(budget: &MemoryBudget) -> String {
    let gigabytes = |bytes: u64| format!("{:.1}", bytes as f64 / 1e9);
    let sequences = budget.sequences().map_or("–".to_owned(), |sequences| format!("{sequences:.1}"));
    let (cache, activations) = match budget.reserve {
        Reserve::Estimated { bytes } => (format!("{} (20 %)", gigabytes(bytes)), "–".to_owned()),
        Reserve::Computed { kv_cache, tokens, reduced_from, activations } => {
            let maximum = reduced_from.map_or(String::new(), |maximum| format!(" of {maximum}"));
            (format!("{} ({tokens}{maximum} tokens)", gigabytes(kv_cache)), gigabytes(activations))
        }
    };
    format!("{} | {} | {cache} | {sequences} | {activations}", gigabytes(budget.usable), gigabytes(budget.weights))
}
