//! ClusterRoles for the users of ostler: what the roles `view`, `edit` and `admin` of a cluster grant on its kinds.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::kinds::NODE;

const READ_VERBS: [&str; 3] = ["get", "list", "watch"];
const WRITE_VERBS: [&str; 5] = ["create", "update", "patch", "delete", "deletecollection"];

/// Kinds of the platform team, and of the owners of use cases (GW-3).
const POOL_KINDS: [&str; 1] = ["backendpools"];
const USE_CASE_KINDS: [&str; 2] = ["llmusecases", "llmusecasesets"];

/// Scope of a kind.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Scope {
    Namespaced,
    Cluster,
}

/// Returns the ClusterRoles. Those that are aggregated to `view`, `edit` and `admin` grant nothing on cluster-scoped kinds in a
/// RoleBinding. `ostler-pool-admin` and `ostler-use-case-owner` are a part of `edit`, for people who manage only pools or only use
/// cases. `ostler-cluster-view` lets users of namespaces read cluster-scoped kinds, which `ostler plan` and `ostler explain` use.
#[must_use]
pub fn user_roles() -> Vec<Value> {
    let all_kinds = [rules(Scope::Namespaced, &READ_VERBS), rules(Scope::Cluster, &READ_VERBS)].concat();
    let mut cluster_view = rules(Scope::Cluster, &READ_VERBS);
    cluster_view.push(json!({"apiGroups": [NODE.group], "resources": [NODE.plural], "verbs": READ_VERBS}));
    let is_routing = |rule: &Value| rule["apiGroups"][0] == api::inference::GROUP;
    let editable = rules(Scope::Namespaced, &WRITE_VERBS).into_iter().filter(|rule| !is_routing(rule));
    let routing = |kinds: &[&str], verbs: &[&str]| json!({"apiGroups": [api::inference::GROUP], "resources": kinds, "verbs": verbs});
    let persona = |owned: &[&str], read: &[&str]| {
        [routing(owned, &[&READ_VERBS[..], &WRITE_VERBS].concat()), routing(read, &READ_VERBS)]
    };
    vec![
        role("ostler-view", Some("view"), &all_kinds),
        role("ostler-edit", Some("edit"), &editable.collect::<Vec<_>>()),
        role("ostler-pool-admin", Some("edit"), &persona(&POOL_KINDS, &USE_CASE_KINDS)),
        role("ostler-use-case-owner", Some("edit"), &persona(&USE_CASE_KINDS, &POOL_KINDS)),
        role("ostler-admin", Some("admin"), &rules(Scope::Cluster, &WRITE_VERBS)),
        role("ostler-cluster-view", None, &cluster_view),
    ]
}

fn role(name: &str, aggregate_to: Option<&str>, rules: &[Value]) -> Value {
    let mut role = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": name},
        "rules": rules});
    if let Some(target) = aggregate_to {
        let label = format!("rbac.authorization.k8s.io/aggregate-to-{target}");
        role["metadata"]["labels"] = json!({label: "true"});
    }
    role
}

/// Returns one rule per API group for the ostler kinds of a scope.
fn rules(scope: Scope, verbs: &[&str]) -> Vec<Value> {
    let definitions = api::crds();
    let text = |definition: &Value, pointer: &str| {
        definition.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned()
    };
    let is_in_scope =
        |definition: &&Value| (definition["spec"]["scope"] == "Namespaced") == (scope == Scope::Namespaced);
    let mut groups: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for definition in definitions.iter().filter(is_in_scope) {
        groups.entry(text(definition, "/spec/group")).or_default().push(text(definition, "/spec/names/plural"));
    }
    let rule = |(group, plurals)| json!({"apiGroups": [group], "resources": plurals, "verbs": verbs});
    groups.into_iter().map(rule).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Together, the parts of `edit` grant writes on all namespaced kinds.
    #[test]
    fn parts_of_the_role_edit_are_complete() {
        let roles = user_roles();
        let is_part =
            |role: &&Value| role.pointer("/metadata/labels/rbac.authorization.k8s.io~1aggregate-to-edit").is_some();
        let writable: std::collections::BTreeSet<String> = roles
            .iter()
            .filter(is_part)
            .flat_map(|role| role["rules"].as_array().unwrap())
            .filter(|rule| rule["verbs"].as_array().unwrap().contains(&json!("create")))
            .flat_map(|rule| rule["resources"].as_array().unwrap())
            .map(|resource| resource.as_str().unwrap().to_owned())
            .collect();
        let definitions = api::crds();
        let namespaced = definitions.iter().filter(|definition| definition["spec"]["scope"] == "Namespaced");
        let plural = |definition: &Value| definition["spec"]["names"]["plural"].as_str().unwrap().to_owned();
        assert_eq!(writable, namespaced.map(plural).collect());
    }

    #[test]
    fn editors_of_a_namespace_write_no_cluster_scoped_kinds() {
        let roles = user_roles();
        let resources = |name: &str| {
            let role = roles.iter().find(|role| role["metadata"]["name"] == name).unwrap();
            role["rules"].to_string()
        };
        assert!(
            resources("ostler-edit").contains("\"inferenceservices\"")
                && resources("ostler-edit").contains("\"basemodels\"")
        );
        for kind in ["acceleratorclasses", "clusterservingruntimes", "clusterbasemodels"] {
            let quoted = format!("\"{kind}\"");
            assert!(
                !resources("ostler-edit").contains(&quoted) && resources("ostler-admin").contains(&quoted),
                "{kind}"
            );
            assert!(
                resources("ostler-view").contains(&quoted) && resources("ostler-cluster-view").contains(&quoted),
                "{kind}"
            );
        }
        for role in &roles {
            assert!(!role["rules"].to_string().contains('*'), "{role}");
        }
    }

    /// A controller of Kubernetes adds the rules of these roles to those of the label.
    #[test]
    fn roles_are_aggregated_by_label() {
        let labels = |role: &Value| role["metadata"]["labels"].clone();
        let actual: Vec<(Value, Value)> =
            user_roles().iter().map(|role| (role["metadata"]["name"].clone(), labels(role))).collect();
        let aggregated = |target: &str| json!({format!("rbac.authorization.k8s.io/aggregate-to-{target}"): "true"});
        assert_eq!(
            actual,
            [
                (json!("ostler-view"), aggregated("view")),
                (json!("ostler-edit"), aggregated("edit")),
                (json!("ostler-pool-admin"), aggregated("edit")),
                (json!("ostler-use-case-owner"), aggregated("edit")),
                (json!("ostler-admin"), aggregated("admin")),
                (json!("ostler-cluster-view"), Value::Null),
            ]
        );
    }
}
