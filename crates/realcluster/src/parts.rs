//! Which programs of a control plane run, and what they do.

/// A choice of programs. etcd and the API server always run.
#[derive(Clone, Copy, Debug)]
pub struct Parts {
    pub(crate) controllers: Controllers,
    pub(crate) scheduler: bool,
    /// Simulated nodes, by kwok.
    pub(crate) nodes: bool,
}

/// Those of kube-controller-manager.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Controllers {
    /// All that run without being asked for, among them those that make service accounts.
    Usual,
    /// No others, and so Pods need no service account.
    Only(&'static str),
}

// === impl Parts ===

impl Parts {
    /// What a cluster has.
    #[must_use]
    pub fn all() -> Self {
        Self { controllers: Controllers::Usual, scheduler: true, nodes: true }
    }

    /// An API server to which nobody writes but the client, and the controllers without which deleting never ends.
    #[must_use]
    pub fn quiet() -> Self {
        let deleting = "garbage-collector-controller,namespace-controller";
        Self { controllers: Controllers::Only(deleting), scheduler: false, nodes: false }
    }

    /// The same with the scheduler.
    #[must_use]
    pub fn with_scheduler(self) -> Self {
        Self { scheduler: true, ..self }
    }

    /// What has to be built.
    pub(crate) fn binaries(self) -> impl Iterator<Item = &'static str> {
        let wanted = [
            ("etcd", true),
            ("kube-apiserver", true),
            ("kube-controller-manager", true),
            ("kube-scheduler", self.scheduler),
            ("kwok", self.nodes),
        ];
        wanted.into_iter().filter(|(_, wanted)| *wanted).map(|(name, _)| name)
    }
}

// === impl Controllers ===

impl Controllers {
    pub(crate) fn make_accounts(self) -> bool {
        matches!(self, Self::Usual)
    }
}
