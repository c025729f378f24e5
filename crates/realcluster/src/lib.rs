//! A real control plane on one machine, for tests: etcd, kube-apiserver, kube-controller-manager, kube-scheduler, and
//! LeaderWorkerSet, Volcano and simulated nodes when asked for ([`Parts`]).
//!
//! In go binaries that somebody has built ([`Binaries`]); out comes a [`RealCluster`] with an administrator's client. Nothing
//! is ever built or downloaded here. What is not real: Pods run nothing (kwok sets them Running), and Services lead
//! nowhere, so webhooks are called by URL. Everything listens on a loopback address of its own and ends with its value.

mod addons;
mod audit;
mod binaries;
mod certificates;
mod cluster;
mod nodes;
mod objects;
mod parts;
mod patience;
mod place;
mod process;
mod proxy;
mod watching;

pub use audit::{Access, accesses};
pub use binaries::Binaries;
pub use cluster::{Account, RealCluster};
pub use nodes::gpu_nodes;
pub use objects::{apply, documents, resource};
pub use parts::Parts;
pub use patience::patiently;
pub use process::{Process, SECONDS};
pub use proxy::{Proxy, Write};
pub use watching::until;
