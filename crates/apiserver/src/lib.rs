//! A Kubernetes API server in one process, with the responses of kube-apiserver.
//!
//! [`Server`] takes the ports in [`ports`] (clock, randomness, admission, container logs) and a [`Store`]. Callers in the
//! process use its methods or a [`kube::Client`](https://docs.rs/kube) over [`router`]; kubectl connects through
//! [`serve`]. Every accepted write is an entry in the journal of the store and a [`Change`] for the subscribers. The
//! server has no built-in ostler kinds: they are installed as CustomResourceDefinitions, as in any cluster.
//!
//! Objects are JSON values and are never converted to generated structs, so no field is lost. The [`Store`] holds all
//! state, and only the last stage of a write changes it; a write without changes creates neither a revision nor a watch
//! event. The server must never run a controller or a container: those are clients, in crates above this one.
//!
//! Layers, each of which uses only those to its left; a write returns what it stored, and an upper layer acts on it:
//!
//! `async_worker`, `parent_directory` ← `store` ← `resources` ← `core` (with `cascade_panics`, `cpu_threads`) ← `transaction` ← `write` ← `deletion`, `crd` ← `cascade` ← `server` ← `http` ← `secure_serving`

#![warn(missing_docs)]

mod api_types;
mod async_worker;
mod binding;
mod cascade;
mod cascade_panics;
mod conversion;
mod core;
mod cpu_threads;
mod crd;
mod deletion;
mod discovery;
mod events;
mod http;
#[cfg(test)]
mod interleaving_tests;
mod openapi;
mod parent_directory;
pub mod ports;
mod protobuf;
mod resources;
mod reviews;
mod secure_serving;
mod server;
mod store;
mod table;
mod transaction;
mod version;
mod watch;
mod write;

pub use http::router;
pub use parent_directory::parent_directory;
pub use secure_serving::credentials_file::{CredentialsError, load_or_generate_credentials};
pub use secure_serving::{Credentials, ServeError, kubeconfig, serve, write_kubeconfig};
pub use server::Server;
pub use store::storage::{AppendFile, Storage, StorageDirectory};
pub use store::{DEFAULT_HISTORY_SIZE, StorageFailure, Store, StoreOpenError, StoreSettings};
pub use version::KUBERNETES_VERSION;
pub use watch::{Change, Lagged, Subscription};
