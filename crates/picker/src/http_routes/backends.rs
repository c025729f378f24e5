//! References from rules to pools.

use std::{collections::BTreeSet, sync::Arc};

use cluster::NamespacedName;
use gateway_api::{httproutes::HttpRouteRulesBackendRefs, referencegrants::ReferenceGrant};
use serde::Deserialize as _;
use serde_json::Value;

use super::rule::Backend;
use crate::{
    code,
    kinds::{BACKEND_POOL, HTTP_ROUTE, INFERENCE_POOL, INFERENCE_POOL_GROUP},
};

/// What references are resolved against.
pub(super) struct BackendResolver<'a> {
    /// BackendPools and InferencePools. Those of the same name are the same pool.
    pools: &'a BTreeSet<NamespacedName>,
    grants: Vec<ReferenceGrant>,
}

/// Why a reference cannot be resolved.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct UnresolvedReference {
    /// Reason of the condition `ResolvedRefs`.
    pub(super) reason: api::Code,
    pub(super) message: String,
}

// === impl BackendResolver ===

impl<'a> BackendResolver<'a> {
    /// Returns a resolver for these pools and ReferenceGrants.
    pub(super) fn new(pools: &'a BTreeSet<NamespacedName>, grants: &[Arc<Value>]) -> Self {
        let grants = grants.iter().filter_map(|grant| ReferenceGrant::deserialize(&**grant).ok());
        Self { pools, grants: grants.collect() }
    }

    /// Resolves a reference in a route of `namespace`. `field` is its path in the route.
    pub(super) fn resolve(
        &self,
        namespace: &str,
        reference: &HttpRouteRulesBackendRefs,
        field: &str,
    ) -> Result<Backend, UnresolvedReference> {
        let group = reference.group.as_deref().unwrap_or_default();
        let kind = reference.kind.as_deref().unwrap_or("Service");
        let unresolved =
            |reason, message: String| UnresolvedReference { reason, message: format!("{field}: {message}") };
        if ![(BACKEND_POOL.group, BACKEND_POOL.kind), (INFERENCE_POOL_GROUP, INFERENCE_POOL)].contains(&(group, kind)) {
            let group = if group.is_empty() { "core" } else { group };
            let message = format!(
                "kind {kind} of group {group} is not a backend; use a BackendPool ({}) or an InferencePool \
                 ({INFERENCE_POOL_GROUP}).",
                BACKEND_POOL.group
            );
            return Err(unresolved(code::INVALID_KIND, message));
        }
        let key = NamespacedName::new(reference.namespace.as_deref().unwrap_or(namespace), &reference.name);
        if key.namespace != namespace && !self.is_granted(namespace, group, kind, &key) {
            let message = format!(
                "{kind} {key} is in another namespace, and no ReferenceGrant of namespace {} permits references from \
                 HTTPRoutes of namespace {namespace}.",
                key.namespace
            );
            return Err(unresolved(code::REF_NOT_PERMITTED, message));
        }
        if !self.pools.contains(&key) {
            return Err(unresolved(code::BACKEND_NOT_FOUND, format!("{kind} {key} not found.")));
        }
        Ok(Backend { pool: Some(key), weight: weight(reference) })
    }

    /// Returns whether a ReferenceGrant permits routes of `namespace` to reference a pool of another namespace.
    fn is_granted(&self, namespace: &str, group: &str, kind: &str, pool: &NamespacedName) -> bool {
        let grants = self.grants.iter().filter(|grant| grant.metadata.namespace.as_ref() == Some(&pool.namespace));
        grants.map(|grant| &grant.spec).any(|grant| {
            let is_from = grant.from.iter().any(|from| {
                from.group == HTTP_ROUTE.group && from.kind == HTTP_ROUTE.kind && from.namespace == namespace
            });
            is_from
                && grant.to.iter().any(|to| {
                    to.group == group && to.kind == kind && to.name.as_ref().is_none_or(|name| *name == pool.name)
                })
        })
    }
}

/// Returns the weight of a reference; negative ones, which the API server rejects, count as zero.
pub(super) fn weight(reference: &HttpRouteRulesBackendRefs) -> u32 {
    u32::try_from(reference.weight.unwrap_or(1)).unwrap_or_default()
}
