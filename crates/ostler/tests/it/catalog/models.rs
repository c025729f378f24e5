//! The shipped models, and the runtimes that they select.

use serde_json::Value;

use super::{auto_selected_formats, list_objects, name, run_plan, runtime_name, service, services_of, warning_codes};

/// `docs/catalogue.md` shows the selections.
// spec: RT-86
#[test]
fn models_select_matching_runtimes() {
    let (models, runtimes) = (list_objects("models"), list_objects("runtimes"));
    let manifests: String = models.iter().map(|model| service(name(model), name(model), None)).collect();
    let (stdout, stderr, _) = run_plan(&manifests, &[]);
    assert_eq!(stderr, "");
    let mut ambiguous = Vec::new();
    for (model, service) in models.iter().zip(services_of(&stdout)) {
        let selected = runtime_name(&service);
        let runtime = runtimes.iter().find(|runtime| name(runtime) == selected).unwrap();
        let has_architecture = |entry: &&Value| {
            [Some(&model["spec"]["modelArchitecture"]), None].contains(&entry.get("modelArchitecture"))
        };
        assert!(auto_selected_formats(runtime).iter().any(has_architecture), "{}", name(model));
        if warning_codes(&service).contains(&"AmbiguousRuntimes") {
            ambiguous.push(name(model));
        }
        let second_candidate =
            service["candidates"].as_array().unwrap().iter().find(|candidate| candidate["rank"] == 2);
        let second = second_candidate.map_or("–", |candidate| candidate["runtime"].as_str().unwrap());
        if let (Some(second), Some(selected)) = (second.strip_prefix("vllm-"), selected.strip_prefix("srt-")) {
            let is_general = ["nvidia", "amd"].iter().any(|vendor| second.starts_with(vendor));
            assert!(is_general || second == selected, "SGLang has the higher priority: {selected}, {second}");
        }
    }
    assert_eq!(ambiguous, Vec::<&str>::new());
}
