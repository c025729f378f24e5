//! Runs with a seed: of what the models draw from it, or of a schedule.

use std::io;
use std::time::Duration;

use crate::initial_objects::initial_server;
use crate::invariant::Invariant;
use crate::invariants::{
    DesiredState, Events, ForeignObjects, Gangs, Gateway, GroupOrder, Inputs, Orphans, Rollouts, SingleWriter,
    Statuses, Supervision,
};
use crate::journal::Journal;
use crate::mistake::Mistake;
use crate::model::AnyModel;
use crate::models::{Definitions, Machines, Network, Nodes, People, Pods};
use crate::process::StartProcess;
use crate::run::{Draw, Failure, Plan, Run, Violation};
use crate::schedule::{Injection, Schedule};
use crate::seed::Seed;
use crate::shrink::shrink;

/// Time after which the replicas have started and one of them leads.
const FIRST_INJECTION: Duration = Duration::from_secs(5);
/// Longest time between two injections. Most are much closer.
const MAX_PAUSE: Duration = Duration::from_secs(8);
const MAX_INJECTIONS: usize = 30;
/// Runs of a smaller schedule while a failure is reduced.
const MAX_SHRINK_RUNS: usize = 150;

/// A simulation of the control plane with one seed.
pub struct Simulation {
    seed: Seed,
    mistake: Option<Mistake>,
    processes: Vec<(&'static str, StartProcess)>,
    models: Vec<NewModels>,
    invariants: Vec<NewInvariants>,
}

type NewModels = Box<dyn Fn() -> Vec<AnyModel>>;
type NewInvariants = Box<dyn Fn() -> Vec<Box<dyn Invariant>>>;

/// The outcome of a run.
#[derive(Debug)]
pub struct Report {
    /// What happened.
    pub journal: Journal,
    /// What the models did, which [`Simulation::replay`] repeats.
    pub injections: Vec<Injection>,
    /// The first broken invariant.
    pub violation: Option<Violation>,
    /// Number of checks of invariants.
    pub checks: usize,
}

// === impl Simulation ===

impl Simulation {
    /// Returns the simulation of the operator with all models and invariants.
    #[must_use]
    pub fn new(seed: Seed) -> Self {
        let adds_nodes = seed.generator("nodes").bool();
        let models = move || {
            vec![
                AnyModel::new(People),
                AnyModel::new(Network),
                AnyModel::new(Pods),
                AnyModel::new(Nodes { adds_nodes }),
                AnyModel::new(Machines),
                AnyModel::new(Definitions),
            ]
        };
        let invariants = || -> Vec<Box<dyn Invariant>> {
            vec![
                Box::new(ForeignObjects),
                Box::new(Inputs),
                Box::new(Supervision),
                Box::new(SingleWriter),
                Box::new(Orphans),
                Box::new(DesiredState),
                Box::new(Statuses),
                Box::new(Events),
                Box::new(Gangs::default()),
                Box::new(GroupOrder::default()),
                Box::new(Rollouts::default()),
                Box::new(Gateway),
            ]
        };
        Self {
            seed,
            mistake: None,
            processes: Vec::new(),
            models: vec![Box::new(models)],
            invariants: vec![Box::new(invariants)],
        }
    }

    /// Plants a mistake.
    #[must_use]
    pub fn with_mistake(self, mistake: Mistake) -> Self {
        Self { mistake: Some(mistake), ..self }
    }

    /// Replaces the models. `models` is called for each run.
    #[must_use]
    pub fn with_models(self, models: impl Fn() -> Vec<AnyModel> + 'static) -> Self {
        Self { models: vec![Box::new(models)], ..self }
    }

    /// Adds models, which act more often than the others. `models` is called for each run.
    #[must_use]
    pub fn add_models(mut self, models: impl Fn() -> Vec<AnyModel> + 'static) -> Self {
        self.models.insert(0, Box::new(models));
        self
    }

    /// Replaces the invariants. `invariants` is called for each run.
    #[must_use]
    pub fn with_invariants(self, invariants: impl Fn() -> Vec<Box<dyn Invariant>> + 'static) -> Self {
        Self { invariants: vec![Box::new(invariants)], ..self }
    }

    /// Adds invariants. `invariants` is called for each run.
    #[must_use]
    pub fn add_invariants(mut self, invariants: impl Fn() -> Vec<Box<dyn Invariant>> + 'static) -> Self {
        self.invariants.push(Box::new(invariants));
        self
    }

    /// Adds a process of another name. The models let it crash, start again, and lose its connection, as those of the control plane,
    /// and its writes count for the same limits.
    #[must_use]
    pub fn add_process(mut self, name: &'static str, start: StartProcess) -> Self {
        self.processes.push((name, start));
        self
    }

    /// Runs what the models draw from the seed.
    ///
    /// # Errors
    /// The runtime or the initial objects could not be created.
    pub fn run(&self) -> io::Result<Report> {
        self.run_plan(Plan::Draws(self.draws()))
    }

    /// Runs a schedule.
    ///
    /// # Errors
    /// The runtime or the initial objects could not be created, or there is no model with an action of the schedule.
    pub fn replay(&self, injections: &[Injection]) -> io::Result<Report> {
        let models = self.new_models();
        for injection in injections {
            let model = models.iter().find(|model| model.name() == injection.model);
            let unknown = || invalid_data(format!("the model {:?} is unknown", injection.model));
            model.ok_or_else(unknown)?.check(&injection.action).map_err(invalid_data)?;
        }
        self.run_plan(Plan::Schedule(injections.to_vec()))
    }

    /// Returns the smallest schedule found that breaks the same invariant as `violation`.
    #[must_use]
    pub fn shrink(&self, injections: &[Injection], violation: &Violation) -> Schedule {
        let injections = shrink(injections, MAX_SHRINK_RUNS, |injections| {
            let report = self.replay(injections).ok();
            report.and_then(|report| report.violation).is_some_and(|found| found.invariant == violation.invariant)
        });
        Schedule { seed: self.seed, injections }
    }

    fn new_models(&self) -> Vec<AnyModel> {
        self.models.iter().flat_map(|new| new()).collect()
    }

    /// Returns when which model acts. People and the network act most often.
    fn draws(&self) -> Vec<Draw> {
        let (mut random, models) = (self.seed.generator("schedule"), self.new_models().len());
        let mut at = FIRST_INJECTION;
        let draw = |_| {
            // Bursts alternate with pauses.
            at += MAX_PAUSE.mul_f64(random.f64().powi(4));
            let model = random.usize(..models).min(random.usize(..models));
            let at_ms = u64::try_from(at.as_millis()).unwrap_or(u64::MAX);
            Draw { at_ms, model, seed: Seed(random.u64(..)) }
        };
        let count = fastrand::Rng::with_seed(self.seed.0).usize(5..MAX_INJECTIONS);
        (0..count).map(draw).collect()
    }

    /// Runs a plan on a runtime of its own.
    fn run_plan(&self, plan: Plan) -> io::Result<Report> {
        // Before the start: the first run must not differ from the others.
        let server = initial_server().map_err(io::Error::other)?;
        // Back-offs of libraries draw from the generator of the thread.
        fastrand::seed(self.seed.0);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build()?;
        runtime.block_on(async {
            let invariants = self.invariants.iter().flat_map(|new| new()).collect();
            let models = self.new_models();
            let mut run = Run::start(server, self.seed, self.mistake, &self.processes, models, invariants);
            let violation = match run.carry_out(plan).await {
                Ok(()) => None,
                Err(Failure::Violation(violation)) => Some(violation),
                Err(Failure::Action(error)) => return Err(invalid_data(error)),
            };
            let journal = run.world.journal().clone();
            Ok(Report { journal, injections: run.injections, violation, checks: run.checks })
        })
    }
}

fn invalid_data(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error)
}
