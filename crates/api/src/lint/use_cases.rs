//! Pools of LLMUseCaseSets and LLMUseCases.

use super::finding::Finding;
use crate::inference::PoolRef;
use crate::manifest::Document;

/// Checks that the pools are in the namespace of the object, which a CEL rule cannot read.
pub(super) fn check(document: &Document, pools: &[PoolRef]) -> Vec<Finding> {
    let Some(namespace) = document.namespace() else { return Vec::new() };
    let finding = |(index, pool): (usize, &PoolRef)| {
        let other = pool.namespace.as_deref().filter(|other| *other != namespace)?;
        let message = format!("`{other}` is not the namespace of the object, which is `{namespace}`");
        let hint = "use a pool of the same namespace, or create the use cases in that of the pool";
        Some(Finding::error(format!("spec.poolRef[{index}].namespace"), message).with_hint(hint))
    };
    pools.iter().enumerate().filter_map(finding).collect()
}
