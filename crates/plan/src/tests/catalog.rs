//! Plans with the runtimes of the catalog.

use std::path::Path;

use rstest::rstest;
use serde_json::Value;

use super::{code, kinds, plan_manifests, service, strings};
use crate::ServicePlan;

/// Returns the SGLang runtimes of the catalog, one file per item.
fn runtimes() -> Vec<String> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../catalog/runtimes/sglang");
    let mut files: Vec<_> = std::fs::read_dir(directory).unwrap().map(|file| file.unwrap().path()).collect();
    files.sort();
    files.iter().map(|file| std::fs::read_to_string(file).unwrap()).collect()
}

fn plan_with_runtime(runtime: &str) -> ServicePlan {
    let catalog = runtimes();
    let path = "{runner: {env: [{name: MODEL_PATH, value: /models/m}]}}";
    let decoder = if runtime.ends_with("-pd") { format!(", decoder: {path}") } else { String::new() };
    let service = service("chat", &format!("{{runtime: {{name: {runtime}}}, engine: {path}{decoder}}}"));
    let manifests: Vec<&str> = catalog.iter().map(String::as_str).chain([service.as_str()]).collect();
    plan_manifests(&manifests)
}

/// Returns the Pod templates of a workload, leader first.
fn templates(workload: &Value) -> Vec<&Value> {
    let paths =
        ["/spec/template", "/spec/leaderWorkerTemplate/leaderTemplate", "/spec/leaderWorkerTemplate/workerTemplate"];
    paths.into_iter().filter_map(|path| workload.pointer(path)).collect()
}

fn line(template: &Value) -> String {
    let container = &template["spec"]["containers"][0];
    [strings(&container["command"]), strings(&container["args"])].concat().join(" ")
}

fn workload<'a>(plan: &'a ServicePlan, name: &str) -> &'a Value {
    let is_workload = |object: &&Value| object["metadata"]["name"] == name && !templates(object).is_empty();
    plan.objects.iter().find(is_workload).unwrap_or_else(|| panic!("no {name} in {:?}: {}", kinds(plan), plan.message))
}

// spec: RT-82
#[test]
fn disaggregated_runtimes_set_their_mode() {
    let text = runtimes().concat();
    let names = text.lines().filter_map(|line| line.strip_prefix("  name: ")).filter(|name| name.ends_with("-pd"));
    let names: Vec<&str> = names.collect();
    assert_eq!(names.len(), 9, "{names:?}");
    for name in names {
        let plan = plan_with_runtime(name);
        assert!(plan.feasible, "{name}: {}", plan.message);
        for (component, mode) in [("chat-engine", "prefill"), ("chat-decoder", "decode")] {
            for template in templates(workload(&plan, component)) {
                let line = line(template);
                assert!(line.contains(&format!("--disaggregation-mode={mode}")), "{name} {component}: {line}");
            }
        }
    }
}

// spec: RT-83
#[rstest]
#[case::single("srt-deepseek-rdma", &["chat-engine"])]
#[case::pair("srt-deepseek-rdma-pd", &["chat-engine", "chat-decoder"])]
fn deepseek_runs_expert_parallel_on_two_nodes(#[case] runtime: &str, #[case] components: &[&str]) {
    let plan = plan_with_runtime(runtime);
    assert_eq!(code(&plan), (true, "Selected"), "{}", plan.message);
    for component in components {
        let set = workload(&plan, component);
        assert_eq!(
            (&set["kind"], &set["spec"]["leaderWorkerTemplate"]["size"]),
            (&"LeaderWorkerSet".into(), &2.into())
        );
        let templates = templates(set);
        assert_eq!(templates.len(), 2);
        for template in templates {
            let container = &template["spec"]["containers"][0];
            let accelerators: u32 =
                container["resources"]["limits"]["nvidia.com/gpu"].as_str().unwrap().parse().unwrap();
            let env = container["env"].as_array().unwrap();
            let size = env.iter().find(|env| env["name"] == "PARALLELISM_SIZE").unwrap();
            assert_eq!(size["value"], (accelerators * 2).to_string());
            let line = line(template);
            for flag in ["--tp-size", "--dp-size", "--ep-size"] {
                assert!(line.contains(&format!("{flag}=$(PARALLELISM_SIZE)")), "{line}");
            }
            // Rendezvous flags of the runtime are not added twice.
            assert_eq!((line.matches("--nnodes").count(), line.matches("--dist-init-addr").count()), (1, 1), "{line}");
        }
    }
}
