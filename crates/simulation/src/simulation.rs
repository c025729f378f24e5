//! Runs: the schedule of a seed, and its execution.

use std::fmt::{self, Display, Formatter};
use std::time::Duration;

use embedded::{Change, Server, Subscription};
use tokio::time::{Instant, timeout_at};

use crate::clock::Clock;
use crate::initial_objects::initial_server;
use crate::invariant::Invariant;
use crate::invariants::{DesiredState, Events, ForeignObjects, Gangs, Gateway, Orphans, SingleWriter, Statuses};
use crate::journal::{EntryKind, Journal};
use crate::mistake::Mistake;
use crate::model::Model;
use crate::models::{Definitions, Machines, Network, Nodes, People, Pods};
use crate::process::Program;
use crate::seed::Seed;
use crate::shrink::shrink;
use crate::term_check::LEASES;
use crate::world::World;

/// Time after which the replicas have started and one of them leads.
const FIRST_INJECTION: Duration = Duration::from_secs(5);
/// Longest time between two injections. Most are much closer.
const MAX_PAUSE: Duration = Duration::from_secs(8);
const MAX_INJECTIONS: usize = 30;
/// The cluster is quiet once nothing but the Lease has changed for this time. Requests have a deadline of 30 s, and the
/// longest back-off is a minute. Waits for a time in an object also last as long as a clock was wrong.
const QUIET: Duration = Duration::from_secs(100);
/// The same for replicas without a fault since their start: one of them leads once the Lease of the last leader has expired.
const QUIET_AFTER_RESTART: Duration = Duration::from_secs(45);
/// Time between changes that belong together.
const BURST: Duration = Duration::from_secs(1);
/// Time in which the cluster must become quiet after the last injection.
const QUIET_DEADLINE: Duration = Duration::from_secs(1200);
/// Writes of the operator per injection: all objects of both services, their statuses and Events, and retries of each.
const MAX_WRITES_PER_INJECTION: usize = 60;
/// Runs of a smaller schedule while a failure is reduced.
const MAX_SHRINK_RUNS: usize = 150;
/// The processes of a run.
const PROCESSES: [(&str, Program); 3] =
    [("operator-a", Program::Operator), ("operator-b", Program::Operator), ("gateway", Program::Gateway)];

/// One action of a model. What it does depends on its own seed and on the cluster, but on no other injection's draws.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Injection {
    /// Virtual time since the start of the run.
    pub at: Duration,
    /// Index of the model.
    pub model: usize,
    /// Seed of the action.
    pub seed: Seed,
}

/// A simulation of the control plane with one seed.
pub struct Simulation {
    seed: Seed,
    mistake: Option<Mistake>,
    models: Box<dyn Fn() -> Vec<Box<dyn Model>>>,
    invariants: Box<dyn Fn() -> Vec<Box<dyn Invariant>>>,
}

/// A broken invariant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Name of the invariant.
    pub invariant: String,
    /// What contradicts it.
    pub message: String,
}

/// The outcome of a run.
#[derive(Debug)]
pub struct Report {
    /// What happened.
    pub journal: Journal,
    /// The first broken invariant.
    pub violation: Option<Violation>,
    /// Number of checks of invariants.
    pub checks: usize,
}

/// State of a run.
struct Run {
    world: World,
    invariants: Vec<Box<dyn Invariant>>,
    changes: Subscription,
    checks: usize,
}

// === impl Simulation ===

impl Simulation {
    /// Returns the simulation of the operator with all models and invariants.
    #[must_use]
    pub fn new(seed: Seed) -> Self {
        let models = || -> Vec<Box<dyn Model>> {
            vec![
                Box::new(People),
                Box::new(Network),
                Box::new(Pods),
                Box::new(Machines),
                Box::new(Nodes),
                Box::new(Definitions),
            ]
        };
        let invariants = || -> Vec<Box<dyn Invariant>> {
            vec![
                Box::new(ForeignObjects),
                Box::new(SingleWriter),
                Box::new(Orphans),
                Box::new(DesiredState),
                Box::new(Statuses),
                Box::new(Events),
                Box::new(Gangs),
                Box::new(Gateway),
            ]
        };
        Self { seed, mistake: None, models: Box::new(models), invariants: Box::new(invariants) }
    }

    /// Plants a mistake.
    #[must_use]
    pub fn with_mistake(self, mistake: Mistake) -> Self {
        Self { mistake: Some(mistake), ..self }
    }

    /// Replaces the models. `models` is called for each run.
    #[must_use]
    pub fn with_models(self, models: impl Fn() -> Vec<Box<dyn Model>> + 'static) -> Self {
        Self { models: Box::new(models), ..self }
    }

    /// Replaces the invariants. `invariants` is called for each run.
    #[must_use]
    pub fn with_invariants(self, invariants: impl Fn() -> Vec<Box<dyn Invariant>> + 'static) -> Self {
        Self { invariants: Box::new(invariants), ..self }
    }

    /// Returns the injections of the seed. People and the network act most often.
    #[must_use]
    pub fn schedule(&self) -> Vec<Injection> {
        let (mut random, models) = (self.seed.generator("schedule"), (self.models)().len());
        let mut at = FIRST_INJECTION;
        let injection = |_| {
            // Bursts alternate with pauses.
            at += MAX_PAUSE.mul_f64(random.f64().powi(4));
            let model = random.usize(..models).min(random.usize(..models));
            Injection { at, model, seed: Seed(random.u64(..)) }
        };
        let count = fastrand::Rng::with_seed(self.seed.0).usize(5..MAX_INJECTIONS);
        (0..count).map(injection).collect()
    }

    /// Runs a schedule on a runtime of its own.
    ///
    /// # Errors
    /// The runtime or the initial objects could not be created.
    pub fn run(&self, schedule: &[Injection]) -> std::io::Result<Report> {
        // Before the start: the first run must not differ from the others.
        let server = initial_server().map_err(std::io::Error::other)?;
        // Back-offs of libraries draw from the generator of the thread.
        fastrand::seed(self.seed.0);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build()?;
        Ok(runtime.block_on(self.run_schedule(server, schedule)))
    }

    /// Returns the smallest schedule found that breaks the same invariant as `violation`.
    #[must_use]
    pub fn shrink(&self, schedule: &[Injection], violation: &Violation) -> Vec<Injection> {
        shrink(schedule, MAX_SHRINK_RUNS, |schedule| {
            let report = self.run(schedule).ok();
            report.and_then(|report| report.violation).is_some_and(|found| found.invariant == violation.invariant)
        })
    }

    async fn run_schedule(&self, server: &Server, schedule: &[Injection]) -> Report {
        let world = World::start(server, self.seed, self.mistake);
        let mut run = Run { changes: world.server().subscribe(), world, invariants: (self.invariants)(), checks: 0 };
        let result = run.carry_out(schedule, &mut (self.models)()).await;
        Report { journal: run.world.journal().clone(), violation: result.err(), checks: run.checks }
    }
}

// === impl Run ===

impl Run {
    async fn carry_out(&mut self, schedule: &[Injection], models: &mut [Box<dyn Model>]) -> Result<(), Violation> {
        let start = Instant::now();
        for (name, program) in PROCESSES {
            self.world.add_process(name, program);
        }
        for injection in schedule {
            while self.next_change(start + injection.at).await?.is_some() {}
            let Some(model) = models.get_mut(injection.model) else { continue };
            let mut random = injection.seed.generator(model.name());
            if let Some(text) = model.act(&mut self.world, &mut random) {
                self.world.journal().record(EntryKind::Injection, model.name(), text);
            }
        }
        let clock_error = self.world.clocks().map(Clock::largest_error).max().unwrap_or_default();
        self.wait_until_quiet(QUIET + clock_error, models).await?;
        self.check_quiet()?;
        self.check_writes(schedule.len())?;
        self.check_second_pass(models).await
    }

    /// Waits for a change other than of the Lease, and checks the invariants after it. Returns `None` at `deadline`.
    async fn next_change(&mut self, deadline: Instant) -> Result<Option<Change>, Violation> {
        loop {
            let Ok(change) = timeout_at(deadline, self.changes.next()).await else { return Ok(None) };
            let change = change.map_err(|lagged| Violation::new("no change is missed", lagged.to_string()))?;
            for invariant in &mut self.invariants {
                self.checks += 1;
                let result = invariant.after_change(&self.world, &change);
                result.map_err(|message| Violation::new(invariant.name(), message))?;
            }
            if change.resource != LEASES {
                return Ok(Some(change));
            }
        }
    }

    /// Ends all faults and waits until nothing has changed for the time `quiet`.
    async fn wait_until_quiet(&mut self, quiet: Duration, models: &mut [Box<dyn Model>]) -> Result<(), Violation> {
        let deadline = Instant::now() + QUIET_DEADLINE;
        self.world.journal().record(EntryKind::Injection, "simulation", "end all faults");
        while Instant::now() < deadline {
            models.iter_mut().for_each(|model| model.settle(&mut self.world));
            if self.next_change(Instant::now() + quiet).await?.is_none() {
                return Ok(());
            }
            // Take the changes that belong together, so that the models do not settle after each.
            while self.next_change(Instant::now() + BURST).await?.is_some() {}
        }
        Err(Violation::new("the cluster becomes quiet", format!("objects still change after {QUIET_DEADLINE:?}")))
    }

    fn check_quiet(&mut self) -> Result<(), Violation> {
        for invariant in &mut self.invariants {
            self.checks += 1;
            let result = invariant.after_quiet(&self.world);
            result.map_err(|message| Violation::new(invariant.name(), message))?;
        }
        Ok(())
    }

    fn check_writes(&self, injections: usize) -> Result<(), Violation> {
        let (writes, limit) = (self.world.writes(), (injections + 1) * MAX_WRITES_PER_INJECTION);
        if writes <= limit {
            return Ok(());
        }
        Err(Violation::new("the number of writes is bounded", format!("{writes} writes, at most {limit}")))
    }

    /// Restarts all replicas: the new leader must find nothing to write.
    async fn check_second_pass(&mut self, models: &mut [Box<dyn Model>]) -> Result<(), Violation> {
        self.world.crash_all();
        self.world.journal().record(EntryKind::Injection, "simulation", "restart all replicas");
        let writes = self.world.writes();
        self.wait_until_quiet(QUIET_AFTER_RESTART, models).await?;
        match self.world.writes() - writes {
            0 => Ok(()),
            count => Err(Violation::new("a second pass writes nothing", format!("it sent {count} writes"))),
        }
    }
}

// === impl Violation ===

impl Violation {
    fn new(invariant: &str, message: String) -> Self {
        Self { invariant: invariant.to_owned(), message }
    }
}

impl Display for Violation {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}: {}", self.invariant, self.message)
    }
}
