//! Selects the components of a control plane.

/// Components to run besides etcd and the API server, which always run.
#[derive(Clone, Copy, Debug)]
pub struct Components {
    pub(crate) controllers: Controllers,
    pub(crate) scheduler: bool,
    /// Simulated nodes (kwok).
    pub(crate) nodes: bool,
}

/// Controllers of kube-controller-manager.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Controllers {
    /// The controllers that run by default, which include the service account controllers.
    Default,
    /// Only the named controllers. Service account admission is disabled, so Pods need no service account.
    Only(&'static str),
}

// === impl Components ===

impl Components {
    /// Returns all components of a cluster.
    #[must_use]
    pub fn all() -> Self {
        Self { controllers: Controllers::Default, scheduler: true, nodes: true }
    }

    /// Returns the API server and the controllers that complete deletions, so that no other component writes to the API
    /// server.
    #[must_use]
    pub fn minimal() -> Self {
        let deletion_controllers = "garbage-collector-controller,namespace-controller";
        Self { controllers: Controllers::Only(deletion_controllers), scheduler: false, nodes: false }
    }

    /// Adds the scheduler.
    #[must_use]
    pub fn with_scheduler(self) -> Self {
        Self { scheduler: true, ..self }
    }

    /// Returns the names of the required binaries.
    pub(crate) fn binaries(self) -> impl Iterator<Item = &'static str> {
        let binaries = [
            ("etcd", true),
            ("kube-apiserver", true),
            ("kube-controller-manager", true),
            ("kube-scheduler", self.scheduler),
            ("kwok", self.nodes),
        ];
        binaries.into_iter().filter(|(_, required)| *required).map(|(name, _)| name)
    }
}

// === impl Controllers ===

impl Controllers {
    /// Returns whether the controllers create service accounts.
    pub(crate) fn creates_service_accounts(self) -> bool {
        matches!(self, Self::Default)
    }
}
