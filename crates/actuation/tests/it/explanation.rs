//! Explanations of requesters and nodes agree with what the controller does.

use actuation::{ClusterView, EngineState, Settings, Start, StartExplanation, StartPath, watched_kinds};
use jiff::Timestamp;
use rstest::rstest;
use serde_json::{Value, json};

use crate::world::{NODE, World};

const PATCH: &str = "dual-pods.llm-d.ai/server-patch";

/// Reads all objects of a world like a client of its API server.
fn view(world: &World) -> ClusterView {
    let objects = watched_kinds().into_iter().map(|kind| {
        let resource =
            if kind.group.is_empty() { kind.plural.to_owned() } else { format!("{}.{}", kind.plural, kind.group) };
        // The world writes everything as one client.
        let own = |object: &Value| {
            serde_json::from_str(&object.to_string().replace("kube-controller-manager", "ostler-actuation")).unwrap()
        };
        (kind, world.server.list(&resource).iter().map(|object| own(object)).collect())
    });
    ClusterView::new(objects, "default", world.settings.clone())
}

fn explain(world: &World, requester: &str) -> StartExplanation {
    view(world).explain_requester("default", requester, Timestamp::now()).unwrap()
}

/// Changes the patch of a requester.
fn edit_patch(pod: &mut Value, edit: impl Fn(&mut Value)) {
    let annotation = &mut pod["metadata"]["annotations"][PATCH];
    let mut patch: Value = serde_json::from_str(annotation.as_str().unwrap()).unwrap();
    edit(&mut patch);
    *annotation = json!(patch.to_string());
}

#[rstest]
#[case::argument("a", |pod: &mut Value| edit_patch(pod, |patch| patch["spec"]["containers"][0]["command"][2] = json!("n")), "command[2]: m, not n")]
#[case::more_arguments("a", |pod: &mut Value| edit_patch(pod, |patch| patch["spec"]["containers"][0]["args"] = json!(["--seed=1"])), "args[0]: absent, not --seed=1")]
#[case::image("a", |pod: &mut Value| edit_patch(pod, |patch| patch["spec"]["containers"][0]["image"] = json!("vllm:2")), "image: vllm:1, not vllm:2")]
#[case::variable("a", |pod: &mut Value| edit_patch(pod, |patch| patch["spec"]["containers"][0]["env"] = json!([{"name": "A", "value": "1"}])), "env[A]: absent, not {\"name\":\"A\",\"value\":\"1\"}")]
#[case::annotation("a", |pod: &mut Value| edit_patch(pod, |patch| patch["metadata"]["annotations"] = json!({"k": "v"})), "annotations[k]: absent, not v")]
#[case::volume("a", |pod: &mut Value| pod["spec"]["volumes"] = json!([{"name": "v", "emptyDir": {"medium": "Memory"}}]), "volumes[v]: absent, not {\"emptyDir\":{\"medium\":\"Memory\"},\"name\":\"v\"}")]
#[case::accelerator("b", |_: &mut Value| {}, "accelerators: GPU-a, not GPU-b")]
fn nearest_sleeper_differs_by_one_field(
    #[case] accelerators: &str,
    #[case] edit: fn(&mut Value),
    #[case] expected: &str,
) {
    let mut world = World::new(Settings::default());
    let sleeper = world.create_sleeper("s", "a", "m");
    world.create_with("r", accelerators, "m", edit);
    world.run();
    let explanation = explain(&world, "r");
    let nearest = explanation.nearest.unwrap();
    assert_eq!(
        (nearest.pod, nearest.difference.unwrap().to_string(), nearest.count),
        (sleeper, expected.to_owned(), 1)
    );
    assert!(matches!(explanation.start, Start::Bound { path: StartPath::Cold, .. }), "{:?}", explanation.start);
    assert!(explanation.problems.is_empty() && explanation.reported.is_empty());
}

#[test]
fn defaults_of_the_api_server_are_no_differences() {
    let mut world = World::new(Settings::default());
    let container = |image: &str| {
        json!({"name": "inference-server", "image": image, "command": ["vllm"],
            "env": [{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}],
            "ports": [{"name": "http", "containerPort": 8000}],
            "readinessProbe": {"httpGet": {"path": "/health", "port": 8000}},
            "resources": {"limits": {"cpu": "2", "memory": "9Gi"}}})
    };
    let edit = |image: &'static str| {
        move |pod: &mut Value| {
            pod["spec"]["containers"][0]["resources"]["requests"] = json!({"cpu": "1", "nvidia.com/gpu": "1"});
            pod["spec"]["volumes"] = json!([{"name": "v", "secret": {"secretName": "s"}}]);
            edit_patch(pod, |patch| patch["spec"]["containers"] = json!([container(image)]));
        }
    };
    world.create_with("s", "a", "m", edit("vllm:1"));
    world.run();
    world.delete("s");
    world.run();
    world.create_with("r", "a", "m", edit("vllm:2"));
    world.run();
    let nearest = explain(&world, "r").nearest.unwrap();
    assert_eq!((nearest.difference.unwrap().to_string().as_str(), nearest.count), ("image: vllm:1, not vllm:2", 1));
}

#[test]
fn path_is_hot_if_the_engine_slept() {
    let mut world = World::new(Settings::default());
    let sleeper = world.create_sleeper("s", "a", "m");
    world.create("r", "a", "m");
    world.run();
    let explanation = explain(&world, "r");
    let Start::Bound { path, engine } = explanation.start else { panic!("{:?}", explanation.start) };
    assert_eq!((path, engine.state), (StartPath::Hot(sleeper), EngineState::Awake));
    assert_eq!((explanation.nearest, explanation.accelerators), (None, vec![("GPU-a".to_owned(), Some(0))]));
}

/// Another requester has the same accelerator: its engine is in the way.
#[test]
fn busy_accelerator_names_the_engine_and_its_requester() {
    let mut world = World::new(Settings::default());
    world.create("first", "a", "m");
    world.run();
    world.create("second", "a", "m");
    world.run_unchecked();
    let explanation = explain(&world, "second");
    let codes: Vec<&str> = explanation.problems.iter().map(|problem| problem.code().as_str()).collect();
    assert_eq!(
        (codes.as_slice(), explanation.reported.len()),
        (["AcceleratorBusy"].as_slice(), 0),
        "the status is the same"
    );
    let others: Vec<_> = explanation.others.iter().map(|engine| (engine.state, engine.requester.as_deref())).collect();
    assert_eq!(others, [(EngineState::Awake, Some("first"))]);
    assert_eq!(explanation.unavailable, explanation.others, "it would be suitable");
    assert_eq!(explanation.start, Start::Expected(StartPath::Cold));
}

/// The accelerators are recorded although the provider cannot be derived, so that the missing entry is known.
#[rstest]
#[case::missing(json!({}), "UnknownAccelerator")]
#[case::invalid(json!({NODE: "{"}), "GpuMapInvalid")]
#[case::other_node(json!({"node-2": "{\"GPU-a\":0}"}), "AcceleratorOfOtherNode")]
fn problems_of_the_map_are_found_from_the_objects(#[case] data: Value, #[case] expected: &str) {
    let mut world = World::new(Settings::default());
    let mut map = world.server.get("configmaps", "default", "gpu-map").unwrap().as_ref().clone();
    map["data"] = data;
    world.server.update("configmaps", map).unwrap();
    world.create("r", "a", "m");
    world.run();
    let explanation = explain(&world, "r");
    assert_eq!(explanation.start, Start::Invalid);
    assert_eq!(explanation.accelerators, [("GPU-a".to_owned(), None)]);
    let problems = format!("{:?}", explanation.problems);
    assert!(problems.starts_with(&format!("[{expected}")), "{problems}");
    assert!(explanation.reported.is_empty(), "the status is the same");
}

// spec: DP-8
#[test]
fn node_shows_the_engines_of_each_gpu_and_the_next_victim() {
    let mut world = World::new(Settings { sleeper_limit: 2, ..Settings::default() });
    let oldest = world.create_sleeper("s", "a", "m");
    world.advance(std::time::Duration::from_secs(5));
    let newest = world.create_sleeper("t", "a", "n");
    world.create("r", "a", "n");
    world.run();
    world.edit_node(|node| node["metadata"]["labels"]["nvidia.com/gpu.memory"] = json!("46068"));
    let explanation = view(&world).explain_node(NODE, "default");
    assert_eq!((explanation.memory_mib, explanation.utilization_percent), (Some(46_068), Some(82)));
    let indexes: Vec<_> = explanation.gpus.iter().map(|gpu| (gpu.uuid.as_str(), gpu.index)).collect();
    assert_eq!(indexes, [("GPU-a", Some(0)), ("GPU-b", Some(1)), ("GPU-c", Some(2)), ("GPU-d", Some(3))]);
    let gpu = &explanation.gpus[0];
    assert_eq!(gpu.requesters, ["r"]);
    let engines: Vec<_> = gpu.engines.iter().map(|engine| (engine.pod.as_str(), engine.state)).collect();
    assert_eq!(engines, [(newest.as_str(), EngineState::Awake), (oldest.as_str(), EngineState::Asleep)]);
    let victim = gpu.engines.iter().find(|engine| Some(&engine.id) == gpu.next_victim.as_ref());
    assert_eq!(victim.map(|engine| engine.pod.as_str()), Some(oldest.as_str()));
}

#[test]
fn pods_without_a_node_and_other_pods() {
    let mut world = World::new(Settings::default());
    world.create_with("r", "a", "m", |pod| pod["spec"]["nodeName"] = Value::Null);
    let unscheduled = explain(&world, "r");
    assert_eq!(unscheduled.start, Start::Unscheduled(None));
    world.create_with("plain", "a", "m", |pod| pod["metadata"]["annotations"] = json!({}));
    assert_eq!(view(&world).explain_requester("default", "plain", Timestamp::now()), None);
    assert_eq!(view(&world).explain_provider("default", "plain"), None);
}
