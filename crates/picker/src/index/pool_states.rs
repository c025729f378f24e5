//! What pools keep when they are built again.

use std::{net::SocketAddr, sync::Arc};

use crate::{endpoint_state::EndpointState, policy::SchedulingPolicy, pool_scheduling::PoolScheduling};

/// States of pools and endpoints.
pub(crate) trait PoolStates {
    /// Returns the state of an endpoint.
    fn endpoint(&self, address: SocketAddr, pod_uid: &str) -> Arc<EndpointState>;

    /// Returns the scheduling of a pool that states this policy, or none.
    fn scheduling(&self, policy: Option<SchedulingPolicy>) -> Arc<PoolScheduling>;

    /// Returns the namespace whose models requests may name without it.
    fn default_namespace(&self) -> &str;
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// New states for every pool and endpoint.
    pub(crate) struct NewStates;

    impl PoolStates for NewStates {
        fn endpoint(&self, _: SocketAddr, _: &str) -> Arc<EndpointState> {
            Arc::default()
        }

        fn scheduling(&self, policy: Option<SchedulingPolicy>) -> Arc<PoolScheduling> {
            Arc::new(PoolScheduling::new(policy.unwrap_or_default(), Arc::default()))
        }

        fn default_namespace(&self) -> &'static str {
            "ns"
        }
    }
}
