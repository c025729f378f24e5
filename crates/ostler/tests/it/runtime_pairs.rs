//! Runtimes of both engines for the same model, in a running cluster.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use kube::api::{Api, DynamicObject, ListParams};
use kube::core::GroupVersionKind;
use kube::discovery::ApiResource;
use serde_json::Value;

use crate::session::{Session, TempDirectory, ostler, outcome, wait_until};

/// Names in both tables of specification 001, which are also those of the models.
const NAMES: [&str; 9] = [
    "e5-mistral-7b-instruct",
    "llama-3-2-11b-vision-instruct",
    "llama-3-2-1b-instruct",
    "llama-3-2-3b-instruct",
    "llama-3-3-70b-instruct",
    "llama-4-maverick-17b-128e-instruct-fp8",
    "llama-4-scout-17b-16e-instruct",
    "mistral-7b-instruct",
    "mixtral-8x7b-instruct",
];
/// Prefix of the runtimes, engine in the list of the catalog, and image.
const ENGINES: [(&str, &str, &str); 2] = [("srt", "SGLang", "lmsysorg/sglang:"), ("vllm", "vLLM", "vllm/vllm-openai:")];

fn catalog(args: &[&str]) -> String {
    let (stdout, stderr, code) = outcome(&ostler(&[&["catalog"], args].concat()).output().unwrap());
    assert_eq!((stderr.as_str(), code), ("", Some(0)));
    stdout
}

/// Returns the specifications or statuses of all objects of a kind, by name.
async fn list(
    client: &kube::Client,
    (group, version, kind): (&str, &str, &str),
    field: &str,
) -> BTreeMap<String, Value> {
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
    let objects = Api::<DynamicObject>::all_with(client.clone(), &resource).list(&ListParams::default()).await.unwrap();
    objects.into_iter().map(|object| (object.metadata.name.unwrap(), object.data[field].clone())).collect()
}

/// Each runtime is listed with its engine, and applied as shown; a service of the model can select either.
// spec: RT-81
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn services_select_runtimes_of_both_engines_for_one_model() {
    let runtimes = catalog(&["list", "runtimes"]);
    let (mut manifest, mut shown) = (String::new(), BTreeMap::new());
    for model in NAMES {
        for (prefix, engine, _) in ENGINES {
            let runtime = format!("{prefix}-{model}");
            let words = runtimes.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
            let engines: Vec<&str> = words.filter(|words| words[..1] == [&runtime]).map(|words| words[1]).collect();
            assert_eq!(engines, [engine], "{runtime}");
            let text = catalog(&["show", &runtime]);
            let document = api::parse_manifest("shown", &text).unwrap().remove(0).value;
            shown.insert(runtime.clone(), document["spec"].clone());
            write!(
                manifest,
                "{text}---\napiVersion: ome.io/v1beta1\nkind: InferenceService\nmetadata: {{name: {runtime}}}\nspec:\n  \
                 model: {{name: {model}}}\n  runtime: {{name: {runtime}}}\n---\n"
            )
            .unwrap();
        }
    }
    let directory = TempDirectory::new();
    let session = Session::start(&["--nodes", "8×H100-80G ×18", "-f", &directory.file("pairs.yaml", &manifest)]);
    let client = session.client().await;
    let handle = tokio::runtime::Handle::current();
    let is_ready = |status: &Value| {
        cluster::find_condition(&status["conditions"], "Ready").is_some_and(|ready| ready["status"] == "True")
    };
    let services = wait_until("all services to be ready", || {
        let services = list(&client, ("ome.io", "v1beta1", "InferenceService"), "status");
        let services = tokio::task::block_in_place(|| handle.block_on(services));
        (services.len() == shown.len() && services.values().all(is_ready)).then_some(services)
    });
    let deployments = list(&client, ("apps", "v1", "Deployment"), "spec").await;
    let stored = list(&client, ("ome.io", "v1beta1", "ClusterServingRuntime"), "spec").await;
    for model in NAMES {
        for (prefix, _, image) in ENGINES {
            let runtime = format!("{prefix}-{model}");
            assert_eq!(stored[&runtime], shown[&runtime], "{runtime}");
            assert_eq!(services[&runtime]["decision"]["runtime"]["name"], runtime, "{runtime}");
            let container = &deployments[&format!("{runtime}-engine")]["template"]["spec"]["containers"][0];
            assert!(container["image"].as_str().unwrap().contains(image), "{runtime}: {container}");
        }
    }
}
