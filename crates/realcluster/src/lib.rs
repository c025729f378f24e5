//! A real control plane on one host, for tests: etcd, kube-apiserver, kube-controller-manager, kube-scheduler, and
//! optionally LeaderWorkerSet, Volcano and simulated nodes ([`Components`]).
//!
//! Input: prebuilt binaries ([`Binaries`]). Output: a [`RealCluster`] with a client of the administrator. The crate never
//! builds or downloads anything. Limitations: Pods run no containers (kwok sets them Running), and Services forward no
//! traffic, so webhooks are called by URL. Each cluster listens on its own loopback address and stops when it is dropped.

#![warn(missing_docs)]

mod addons;
mod audit;
mod binaries;
mod certificates;
mod cluster;
mod components;
mod kwok_stages;
mod loopback;
mod nodes;
mod objects;
mod process;
mod proxy;
mod retry;
mod wait;

pub use audit::{AuditedRequest, audited_requests};
pub use binaries::Binaries;
pub use cluster::{RealCluster, ServiceAccountClient};
pub use components::Components;
pub use nodes::gpu_nodes;
pub use objects::{apply, dynamic_api, parse_documents};
pub use process::{Process, TIMEOUT_SECONDS};
pub use proxy::{ObservedWrite, Proxy};
pub use retry::retry_transient_errors;
pub use wait::wait_until;
