//! Names of models in requests that address no pool.
//!
//! A model is named `NAMESPACE/MODEL`. In the default namespace, `MODEL` alone names it, too, and takes precedence over a
//! `NAMESPACE/MODEL` of another namespace that reads the same, such as `Qwen/Qwen3-8B`. Apart from such names, the services of one
//! namespace never change which requests those of another one receive.

use std::collections::BTreeMap;

use cluster::NamespacedName;
use smallvec::{SmallVec, smallvec};

use crate::use_case::UseCase;

/// Default namespace of a gateway.
pub const DEFAULT_NAMESPACE: &str = "default";

/// The models of all pools by their names.
#[derive(Debug, Default)]
pub(crate) struct ModelNames {
    default_namespace: String,
    models: BTreeMap<String, NamedModel>,
}

/// A model of a namespace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct NamedModel {
    /// Name in the use cases of its namespace.
    pub(crate) model: String,
    /// Pools that serve it: those of the oldest object that declares it. They are in one namespace.
    pub(crate) pools: Vec<NamespacedName>,
}

// === impl ModelNames ===

impl ModelNames {
    /// Returns the names of the models of `use_cases`, each with its pool.
    pub(crate) fn new<'a>(
        default_namespace: &str,
        use_cases: impl Iterator<Item = (&'a NamespacedName, &'a UseCase)>,
    ) -> Self {
        let named = oldest_declarations(use_cases);
        let qualified = named.iter().map(|(namespace, named)| (qualified_name(namespace, &named.model), named.clone()));
        let bare = named.iter().filter(|(namespace, _)| *namespace == default_namespace);
        let bare = bare.map(|(_, named)| (named.model.clone(), named.clone()));
        // The later entries replace the earlier ones.
        Self { default_namespace: default_namespace.to_owned(), models: qualified.chain(bare).collect() }
    }

    /// Returns the namespace whose models are named without it.
    pub(crate) fn default_namespace(&self) -> &str {
        &self.default_namespace
    }

    /// Returns the model that a request names.
    pub(crate) fn get(&self, name: &str) -> Option<&NamedModel> {
        self.models.get(name)
    }

    /// Returns the shortest name of a model of `namespace`.
    pub(crate) fn shortest_name(&self, namespace: &str, model: &str) -> String {
        if namespace == self.default_namespace { model.to_owned() } else { qualified_name(namespace, model) }
    }

    /// Returns each model once, with its shortest name.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&str, &NamedModel)> {
        self.models.iter().filter_map(|(name, named)| {
            let namespace = &named.pools.first()?.namespace;
            let is_shortest = *namespace != self.default_namespace || *name == named.model;
            is_shortest.then_some((name.as_str(), named))
        })
    }

    /// Returns the names of the models that are called `model` in their namespaces.
    pub(crate) fn names_of<'a>(&'a self, model: &'a str) -> impl Iterator<Item = &'a str> {
        self.iter().filter(move |(_, named)| named.model == model).map(|(name, _)| name)
    }

    /// Returns all names of a model of `namespace`.
    pub(crate) fn names_in(&self, namespace: &str, model: &str) -> SmallVec<[String; 2]> {
        let mut names = smallvec![qualified_name(namespace, model)];
        if namespace == self.default_namespace {
            names.push(model.to_owned());
        }
        names
    }
}

/// Returns `NAMESPACE/MODEL`.
pub(crate) fn qualified_name(namespace: &str, model: &str) -> String {
    [namespace, "/", model].concat()
}

/// Returns the models by namespace, each with the pools of the oldest object that declares it; a rewrite is older than no use case. The namespace and name of their first
/// pool break ties, so that all replicas agree.
fn oldest_declarations<'a>(
    use_cases: impl Iterator<Item = (&'a NamespacedName, &'a UseCase)>,
) -> Vec<(&'a str, NamedModel)> {
    let mut declarations: BTreeMap<(&str, &str), Vec<(&UseCase, &NamespacedName)>> = BTreeMap::new();
    for (pool, use_case) in use_cases {
        declarations.entry((&pool.namespace, &use_case.model_name)).or_default().push((use_case, pool));
    }
    let oldest = |mut declarations: Vec<(&'a UseCase, &'a NamespacedName)>| {
        declarations.sort_by_key(|(use_case, key)| (use_case.is_rewrite, &use_case.creation_timestamp, *key));
        let object = declarations.first().map(|(use_case, _)| (&use_case.creation_timestamp, &use_case.declared_by));
        let is_oldest = |use_case: &UseCase| Some((&use_case.creation_timestamp, &use_case.declared_by)) == object;
        declarations.iter().filter(|(use_case, _)| is_oldest(use_case)).map(|(_, key)| (*key).clone()).collect()
    };
    let named = |((namespace, model), declarations): ((&'a str, &str), _)| {
        (namespace, NamedModel { model: model.to_owned(), pools: oldest(declarations) })
    };
    declarations.into_iter().map(named).collect()
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    /// Returns the names of models on pools `NAMESPACE/POOL`, with `default` as the default namespace.
    fn names(pools: &[(&str, &str, &[&str])]) -> ModelNames {
        let mut use_cases = Vec::new();
        for (pool, created, models) in pools {
            let (namespace, name) = pool.split_once('/').unwrap();
            for model in *models {
                let use_case = UseCase { creation_timestamp: (*created).to_owned(), ..UseCase::implicit(model) };
                use_cases.push((NamespacedName::new(namespace, name), use_case));
            }
        }
        ModelNames::new("default", use_cases.iter().map(|(pool, use_case)| (pool, use_case)))
    }

    #[rstest]
    #[case::bare("chat", Some("default/p"))]
    #[case::qualified("default/chat", Some("default/p"))]
    #[case::other_namespace("team-b/chat", Some("team-b/p"))]
    #[case::only_elsewhere("draft", None)]
    #[case::qualified_elsewhere("team-b/draft", Some("team-b/p"))]
    #[case::exact_name("team-b/exact", Some("default/p"))]
    #[case::slash_in_the_model("team-b/Qwen/Qwen3-8B", Some("team-b/p"))]
    #[case::other_slash("Qwen/Qwen3-8B", None)]
    fn names_of_namespaces_are_separate(#[case] name: &str, #[case] expected: Option<&str>) {
        let names = names(&[
            ("team-b/p", "2026-01-01", &["chat", "draft", "exact", "Qwen/Qwen3-8B"]),
            ("default/p", "2026-02-01", &["chat", "team-b/exact"]),
        ]);
        assert_eq!(names.get(name).map(|named| named.pools[0].to_string()).as_deref(), expected);
    }

    #[test]
    fn each_model_is_listed_once() {
        let names = names(&[("team-b/p", "1", &["chat"]), ("default/p", "1", &["chat", "x"])]);
        assert_eq!(names.iter().map(|(name, _)| name).collect::<Vec<_>>(), ["chat", "team-b/chat", "x"]);
        assert_eq!(names.names_of("chat").collect::<Vec<_>>(), ["chat", "team-b/chat"]);
    }

    #[test]
    fn oldest_object_of_a_namespace_serves_a_model() {
        let names = names(&[("default/new", "2", &["chat"]), ("default/old", "1", &["chat"]), ("a/p", "0", &["chat"])]);
        assert_eq!(names.get("chat").unwrap().pools, [NamespacedName::new("default", "old")]);
    }

    #[test]
    fn names_contain_the_namespace() {
        let names = names(&[]);
        assert_eq!(names.names_in("default", "chat").as_slice(), ["default/chat", "chat"]);
        assert_eq!(names.names_in("team-b", "chat").as_slice(), ["team-b/chat"]);
    }
}
