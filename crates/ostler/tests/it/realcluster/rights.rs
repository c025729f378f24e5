//! The shipped roles against what the operator has asked for: nothing was refused, and nothing is granted in vain.

use std::collections::BTreeSet;
use std::net::{IpAddr, UdpSocket};
use std::sync::Arc;
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use operator::rights;
use realcluster::Access;
use serde_json::{Value, json};

use super::world::{Objects, World, eventually, named};
use crate::session::PATIENCE;

const SECRETS: (&str, &str) = ("secrets", "v1");
/// Without a selector: its endpoints are this machine, where the operators run.
const SERVICE: &str = "ostler-webhook-here";
/// What nothing here drives: a router of its own in place of pools, a history that grows too long, and objects of KEDA,
/// which is not installed.
const NOT_HERE: [(&str, &[&str]); 4] = [
    ("backendpools", &["delete"]),
    ("llmusecasesets", &["delete"]),
    ("controllerrevisions", &["delete"]),
    ("scaledobjects", &["list", "watch", "create", "patch", "delete"]),
];

/// Behind a Service the certificate is shared in a Secret, and the cluster is told to trust it; one that ends soon is
/// replaced, and trusted until then. The API server calls both by the Service.
pub(super) async fn the_certificate_of_a_service(world: &mut World, address: IpAddr) {
    let port = behind_the_service(world, "third", address).await;
    let first = trusted(world, |_| true).await;
    route(world, address, port).await;
    refuses(world, "third").await;
    let soon = json!({"metadata": {"annotations": {"ostler.io/expires": "2020-01-01T00:00:00Z"}}});
    world.patch(SECRETS, operator::NAMESPACE, "ostler-admission", &soon).await;
    let port = behind_the_service(world, "fourth", address).await;
    let second = trusted(world, |secret| secret["data"]["previous.crt"] == first["data"]["tls.crt"]).await;
    assert_ne!(second["data"]["tls.crt"], first["data"]["tls.crt"]);
    route(world, address, port).await;
    refuses(world, "fourth").await;
}

/// Endpoints may not be loopback addresses. Nothing is sent.
pub(super) fn own_address() -> Option<IpAddr> {
    let socket = UdpSocket::bind("0.0.0.0:0").ok()?;
    socket.connect("192.0.2.1:9").ok()?;
    socket.local_addr().ok().map(|address| address.ip()).filter(|address| !address.is_loopback())
}

/// Starts an operator whose webhook listens at the port that is returned.
async fn behind_the_service(world: &mut World, name: &str, address: IpAddr) -> u16 {
    let (listen, service) = (format!("{address}:0"), format!("{}/{SERVICE}", operator::NAMESPACE));
    world.operate(name, &["--webhook", &listen, "--webhook-service", &service]).await;
    let process = Arc::clone(&world.operator().process);
    let told = format!("the admission webhook listens at {address}:");
    eventually(&told, async || {
        let said = process.lock().unwrap().said();
        let rest = said.lines().find_map(|line| line.split_once(&told)).map(|(_, port)| port)?;
        rest.trim().parse().ok()
    })
    .await
}

/// Leads the Service to `port` of this machine.
async fn route(world: &World, address: IpAddr, port: u16) {
    let metadata =
        |name: &str, labels: Value| json!({"name": name, "namespace": operator::NAMESPACE, "labels": labels});
    let service = json!({"apiVersion": "v1", "kind": "Service", "metadata": metadata(SERVICE, json!({})),
        "spec": {"ports": [{"name": "webhook", "port": 443, "targetPort": port}]}});
    let slice = json!({"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
        "metadata": metadata(SERVICE, json!({"kubernetes.io/service-name": SERVICE})),
        "ports": [{"name": "webhook", "port": port, "protocol": "TCP"}],
        "endpoints": [{"addresses": [address.to_string()], "conditions": {"ready": true}}]});
    world.cluster.apply(&[service, slice]).await.unwrap();
}

/// Once the API server has asked the webhook and told what it said. Nothing tells when it has learnt of a configuration.
async fn refuses(world: &World, name: &str) {
    let kind = ("clusterservingruntimes.ome.io", "v1beta1");
    let name = format!("by-{name}");
    let given = json!({"apiVersion": "ome.io/v1beta1", "kind": "ClusterServingRuntime", "metadata": {"name": name},
        "spec": {"disabled": true, "modelSizeRange": {"min": "9B", "max": "5B"}}});
    let refusal = world.until_refused(&given, kind, "").await;
    assert!(refusal.contains("admission.ostler.io") && refusal.contains("min 9B is above max 5B"), "{refusal}");
}

/// The Secret for which `holds`, once the cluster trusts what is in it.
async fn trusted(world: &World, holds: impl Fn(&Value) -> bool) -> Value {
    let is = |found: &Objects| found.get("ostler-admission").is_some_and(&holds);
    let mut secrets = world.until("the Secret", SECRETS, operator::NAMESPACE, is).await;
    let secret = secrets.remove("ostler-admission").unwrap();
    let pem = |text: &Value| String::from_utf8(STANDARD.decode(text.as_str().unwrap_or_default()).unwrap()).unwrap();
    let bundle = format!("{}{}", pem(&secret["data"]["tls.crt"]), pem(&secret["data"]["previous.crt"]));
    let configurations = ("validatingwebhookconfigurations.admissionregistration.k8s.io", "v1");
    world
        .until("the configuration", configurations, "", |found| {
            let client = &named(found, "ostler-admission")["webhooks"][0]["clientConfig"];
            client["service"]["name"] == SERVICE && pem(&client["caBundle"]) == bundle
        })
        .await;
    secret
}

/// One verb on one resource, perhaps of one name.
type Right = (String, String, String);

fn granted() -> BTreeSet<Right> {
    let mut rights = BTreeSet::new();
    for rule in rights::of_cluster().into_iter().chain(rights::of_namespace()) {
        let texts = |field: &str| -> Vec<String> {
            rule[field].as_array().into_iter().flatten().map(|one| one.as_str().unwrap().to_owned()).collect()
        };
        for verb in texts("verbs") {
            rights.insert((texts("apiGroups")[0].clone(), texts("resources")[0].clone(), verb));
        }
    }
    rights
}

/// What the roles have to grant for this request: a patch that makes its object counts as both.
fn needed(access: &Access) -> Vec<Right> {
    let right = |verb: &str| (access.group.clone(), access.resource.clone(), verb.to_owned());
    match (access.verb.as_str(), access.code) {
        ("patch", 201) => vec![right("patch"), right("create")],
        (verb, _) => vec![right(verb)],
    }
}

/// Who looks whether something is there may hear that it is not.
fn is_answered(access: &Access) -> bool {
    access.code < 400 || (access.verb == "get" && access.code == 404)
}

/// Owner references ask for it where the plugin of that name is on, as it is here; requests never do.
fn is_asked_for(right: &Right) -> bool {
    let (_, resource, verb) = right;
    let is_here = |(name, verbs): &(&str, &[&str])| name != resource || !verbs.contains(&verb.as_str());
    !resource.ends_with("/finalizers") && NOT_HERE.iter().all(is_here)
}

/// `behind_a_service`: whether the certificate was shared in a Secret.
pub(super) async fn granted_is_used_and_used_is_granted(world: &mut World, behind_a_service: bool) {
    let user = world.account.as_ref().unwrap().user.clone();
    for running in &world.operators {
        running.process.lock().unwrap().kill().unwrap();
    }
    let read = || realcluster::accesses(&world.cluster.audit_log(), &user).unwrap();
    let idle = || -> Vec<Right> {
        let used: BTreeSet<Right> = read().iter().filter(|access| is_answered(access)).flat_map(needed).collect();
        let asked = |right: &Right| is_asked_for(right) && (behind_a_service || right.1 != "secrets");
        granted().into_iter().filter(|right| asked(right) && !used.contains(right)).collect()
    };
    // A watch is logged when it has ended, and the API server hears of that later than we.
    let (began, mut left) = (Instant::now(), idle());
    while !left.is_empty() && began.elapsed() < PATIENCE {
        tokio::time::sleep(Duration::from_millis(100)).await;
        left = idle();
    }
    assert!(left.is_empty(), "granted and never used: {left:#?}");
    let all = read();
    let refused: Vec<&Access> = all.iter().filter(|access| access.code == 403).collect();
    assert!(refused.is_empty(), "the roles lack: {refused:#?}");
    // By pattern or by name, no Secret but our own was read.
    let secrets: Vec<&Access> =
        all.iter().filter(|access| access.resource == "secrets" && access.verb != "create").collect();
    assert!(
        secrets.iter().all(|access| access.name == "ostler-admission" && access.namespace == operator::NAMESPACE),
        "{secrets:?}"
    );
}
