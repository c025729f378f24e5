//! Deterministic simulation of the control plane: the real operator and the real embedded API server in one thread, on a
//! virtual clock, with injected faults.
//!
//! A [`Seed`] determines one run. [`Simulation::run`] draws from it when which [`Model`] acts and what it does, checks every
//! [`Invariant`] and returns a [`Report`] with the [`Journal`] and the injections. [`Simulation::replay`] repeats injections,
//! also those that people write down. [`Simulation::shrink`] removes the injections that a failure does not need. The journal
//! of a seed is the same in every run, byte for byte. `docs/simulation.md` explains how to read a journal and how to add a
//! model, an invariant or a fault.
//!
//! Layers, each of which uses only those to its left:
//!
//! `seed`, `schedule`, `journal`, `clock`, `term_check` ← `initial_objects`, `mistake` ← `faults` ← `transport` ← `process`,
//! `kubelet` ← `world` ← `model`, `invariant` ← `models`, `invariants`, `run` ← `simulation`; beside them `shrink`

#![warn(missing_docs)]

mod clock;
mod faults;
mod initial_objects;
mod invariant;
mod invariants;
mod journal;
mod kubelet;
mod mistake;
mod model;
mod models;
mod process;
mod run;
mod schedule;
mod seed;
mod shrink;
mod simulation;
mod term_check;
mod transport;
mod world;

pub use clock::Clock;
pub use faults::{Fault, Faults, RequestClass};
pub use invariant::Invariant;
pub use journal::{Entry, EntryKind, Journal};
pub use mistake::Mistake;
pub use model::{AnyModel, Model};
pub use process::{ProcessContext, StartProcess};
pub use run::Violation;
pub use schedule::{Injection, Schedule};
pub use seed::Seed;
pub use shrink::shrink;
pub use simulation::{Report, Simulation};
pub use world::World;
