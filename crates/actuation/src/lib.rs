//! Dual pods (seed 004): puts idle engines to sleep, and wakes them for the next Pod that needs the same engine on the same
//! accelerators.
//!
//! A *requester* is the Pod that users create: the scheduler and the kubelet assign accelerators to it. A *provider* is the Pod
//! that runs its engine on these accelerators. A *sleeper* is a provider that is not bound to a requester; its engine is asleep.
//!
//! Input of [`Coordinator`]: changes of Pods, Nodes and `gpu-map`, results of writes, and answers to HTTP calls. Output: at most
//! one [`Action`] per node at a time. [`step`] contains the rules, [`nominal_provider`] derives a provider from its requester.
//! None of this performs I/O or reads a clock, so that the same input gives the same actions; the owner of a `Coordinator` carries
//! them out. Nothing that matters exists only in memory: the accelerators are recorded on the requester; binding, identity and the
//! time at which the engine was last awake on the provider.
//!
//! Layers, from low to high:
//! - `code`, `container`, `pod_ref`, `names`, `settings`, `instance` (engines of launchers);
//! - `nominal` with `identity`, `gpu_map` and `problem` (why a requester is not served); `delete_purpose`, `call` (HTTP requests and answers);
//! - `requester`, `provider` and `launcher` (parsed Pods), `template` (providers of requesters in manifests), `facts` (observed over HTTP), `node` (all of these of one node);
//! - `action` and `write` (the bodies of writes), `step` (the rules);
//! - `answer` (effects of answers on facts), `coordinator` (all nodes);
//! - `event` (Events about decisions), `metrics`;
//! - `explanation` (of Pods and nodes, from the objects of a cluster).
//!
//! Beside them, with I/O: `http` performs the calls, `controller` runs a coordinator, `gpu_discovery` fills `gpu-map`, `release` ends
//! all bindings; `accelerators` lists those of a container, for `requester_daemon`, the program in the requester, and `launcher_daemon`, the
//! program that runs several engines in one Pod. Permissions of the controller: `rbac`, `admission_policies`;
//! which Pods are its own: `ownership`.

#![warn(missing_docs)]

mod accelerators;
mod action;
mod admission_policies;
mod answer;
mod call;
pub mod code;
mod container;
mod controller;
mod coordinator;
mod delete_purpose;
mod event;
mod explanation;
mod facts;
mod gpu_discovery;
mod gpu_map;
mod http;
mod identity;
mod instance;
mod launcher;
mod launcher_daemon;
mod metrics;
mod names;
mod node;
mod nominal;
mod ownership;
mod pod_ref;
mod problem;
mod provider;
mod rbac;
mod release;
mod requester;
mod requester_daemon;
mod settings;
mod step;
mod template;
mod write;

pub use accelerators::{Accelerator, find_accelerators, list_accelerators};
pub use action::{Action, Next, PatchPurpose, StatusUpdate, Write};
pub use admission_policies::admission_policies;
pub use call::{Answer, Call, CallError, CallErrorKind, ObservedInstance, Request, SleepMode, Target};
pub use container::{Container, ContainerPhase};
pub use controller::{ControllerOptions, run_controller};
pub use coordinator::{Coordinator, Decision, Time, WriteError, WriteResults, cache_policy, watched_kinds};
pub use delete_purpose::DeletePurpose;
pub use explanation::{
    ClusterView, Difference, EngineSummary, GpuExplanation, NearestSleeper, NodeExplanation, Start, StartExplanation,
    StartPath,
};
pub use facts::{
    Activity, CallFailure, Drain, EngineFacts, InstanceFacts, LauncherFacts, MemoryUsage, Process, RequesterFacts,
    Verification,
};
pub use gpu_discovery::{GPU_MAP_MANAGER, GpuDiscovery, NodeOutcome, discover_gpus, is_own_gpu_map_entry};
pub use gpu_map::GpuMap;
pub use http::perform;
pub use instance::{EngineId, Instance, InstanceRecord, InstanceRecords};
pub use launcher::Launcher;
pub use launcher_daemon::{EngineCommand, EngineRunner, GpuSource, InstanceOptions, LauncherDaemon, LauncherOptions};
pub use metrics::Metrics;
pub use node::{Availability, Demand, Engine, EngineState, LauncherState, NodeState, Rejection, Server};
pub use nominal::{Derivation, NominalInstance, NominalProvider, Owner, PatchError, nominal_provider};
pub use pod_ref::PodRef;
pub use problem::Problem;
pub use provider::{Binding, PoolLabels, Provider};
pub use rbac::{
    LEASE_NAME, SERVICE_ACCOUNT_NAME, cluster_reader_rules, cluster_role_rules, namespace_role_rules,
    own_namespace_rules, watched_namespace_rules,
};
pub use release::{ReleaseError, ReleaseSummary, release};
pub use requester::Requester;
pub use requester_daemon::{RequesterDaemon, RequesterOptions};
pub use settings::{LauncherSettings, Mode, Settings};
pub use step::step;
pub use template::template_provider;
pub use write::provider_pod;
