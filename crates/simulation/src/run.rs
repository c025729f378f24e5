//! One run: the models act, and the invariants are checked.

use std::fmt::{self, Display, Formatter};
use std::sync::Arc;
use std::time::Duration;

use embedded::{Change, Server, Subscription};
use tokio::time::{Instant, timeout_at};

use crate::clock::Clock;
use crate::invariant::Invariant;
use crate::journal::EntryKind;
use crate::mistake::Mistake;
use crate::model::AnyModel;
use crate::process::{Program, StartProcess};
use crate::schedule::Injection;
use crate::seed::Seed;
use crate::term_check::LEASES;
use crate::world::World;

/// The cluster is quiet once nothing but the Lease has changed for this time. Requests have a deadline of 30 s, and the
/// longest back-off is a minute. Waits for a time in an object also last as long as a clock was wrong.
const QUIET: Duration = Duration::from_secs(100);
/// The same for replicas without a fault since their start: one of them leads once the Lease of the last leader has expired.
const QUIET_AFTER_RESTART: Duration = Duration::from_secs(45);
/// Time between changes that belong together.
const BURST: Duration = Duration::from_secs(1);
/// Time in which the cluster must become quiet after the last injection.
const QUIET_DEADLINE: Duration = Duration::from_secs(1200);
/// Longest time for which the faults last after the last injection: deadlines of requests and terms of leaders end meanwhile.
const MAX_FAULTS_AFTER_INJECTIONS: Duration = Duration::from_secs(60);
/// Writes of the operator per injection: all objects of both services, their statuses and Events, and retries of each.
const MAX_WRITES_PER_INJECTION: usize = 60;
/// The processes of a run.
const PROCESSES: [(&str, Program); 3] =
    [("operator-a", Program::Operator), ("operator-b", Program::Operator), ("gateway", Program::Gateway)];

/// When a model acts, and the seed of what it draws.
pub(crate) struct Draw {
    /// Virtual time since the start of the run, in milliseconds.
    pub(crate) at_ms: u64,
    /// Index of the model.
    pub(crate) model: usize,
    pub(crate) seed: Seed,
}

/// What the models do in a run.
pub(crate) enum Plan {
    /// What they draw.
    Draws(Vec<Draw>),
    /// The injections of a schedule.
    Schedule(Vec<Injection>),
}

/// A broken invariant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Name of the invariant.
    pub invariant: String,
    /// What contradicts it.
    pub message: String,
}

/// Why a run ends early.
pub(crate) enum Failure {
    /// An invariant does not hold.
    Violation(Violation),
    /// An action is not one of its model.
    Action(serde_json::Error),
}

/// State of a run.
pub(crate) struct Run {
    pub(crate) world: World,
    invariants: Vec<Box<dyn Invariant>>,
    models: Vec<AnyModel>,
    pub(crate) injections: Vec<Injection>,
    changes: Subscription,
    /// How long the faults last after the last injection.
    last_faults: Duration,
    pub(crate) checks: usize,
}

// === impl Run ===

impl Run {
    /// Starts the control plane with these processes beside it.
    pub(crate) fn start(
        server: &Server,
        seed: Seed,
        mistake: Option<Mistake>,
        processes: &[(&'static str, StartProcess)],
        models: Vec<AnyModel>,
        invariants: Vec<Box<dyn Invariant>>,
    ) -> Self {
        let mut world = World::start(server, seed, mistake);
        let changes = world.server().subscribe();
        for (name, program) in PROCESSES {
            world.add_process(name, program);
        }
        for (name, start) in processes {
            world.add_process(name, Program::Other(Arc::clone(start)));
        }
        let last_faults = MAX_FAULTS_AFTER_INJECTIONS.mul_f64(seed.generator("last faults").f64());
        Self { world, changes, models, invariants, injections: Vec::new(), last_faults, checks: 0 }
    }

    /// Carries out a plan, waits until the cluster is quiet, and restarts all processes.
    pub(crate) async fn carry_out(&mut self, plan: Plan) -> Result<(), Failure> {
        let start = Instant::now();
        match plan {
            Plan::Draws(draws) => {
                for draw in draws {
                    self.wait_until(start + Duration::from_millis(draw.at_ms)).await?;
                    self.draw(&draw)?;
                }
            }
            Plan::Schedule(injections) => {
                for injection in injections {
                    self.wait_until(start + injection.at()).await?;
                    self.inject(injection)?;
                }
            }
        }
        self.wait_until(Instant::now() + self.last_faults).await?;
        // Two clocks may be wrong in opposite directions.
        let clock_steps: Duration = self.world.clocks().map(Clock::largest_step).sum();
        self.wait_until_quiet(QUIET + clock_steps).await?;
        self.check_quiet()?;
        self.check_writes()?;
        Ok(self.check_second_pass().await?)
    }

    /// Lets a model draw actions and carry them out.
    fn draw(&mut self, draw: &Draw) -> Result<(), Failure> {
        let Some(model) = self.models.get_mut(draw.model) else { return Ok(()) };
        let name = model.name();
        let actions = model.draw(&self.world, &mut draw.seed.generator(name))?;
        let injection = |action| Injection { at_ms: draw.at_ms, model: name.to_owned(), action };
        actions.into_iter().map(injection).try_for_each(|injection| self.inject(injection))
    }

    /// Lets a model carry out an action.
    fn inject(&mut self, injection: Injection) -> Result<(), Failure> {
        let Some(model) = self.models.iter_mut().find(|model| model.name() == injection.model) else { return Ok(()) };
        if let Some(text) = model.act(&mut self.world, &injection.action)? {
            self.world.journal().record(EntryKind::Injection, model.name(), text);
            self.injections.push(injection);
        }
        Ok(())
    }

    /// Waits until a time, and checks the invariants after each change until then.
    async fn wait_until(&mut self, time: Instant) -> Result<(), Violation> {
        while self.next_change(time).await?.is_some() {}
        Ok(())
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
    async fn wait_until_quiet(&mut self, quiet: Duration) -> Result<(), Violation> {
        let deadline = Instant::now() + QUIET_DEADLINE;
        self.world.journal().record(EntryKind::Injection, "simulation", "end all faults");
        while Instant::now() < deadline {
            self.models.iter_mut().for_each(|model| model.settle(&mut self.world));
            if self.next_change(Instant::now() + quiet).await?.is_none() {
                return Ok(());
            }
            // Take the changes that belong together, so that the models do not settle after each.
            self.wait_until(Instant::now() + BURST).await?;
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

    fn check_writes(&self) -> Result<(), Violation> {
        let (writes, limit) = (self.world.writes(), (self.injections.len() + 1) * MAX_WRITES_PER_INJECTION);
        if writes <= limit {
            return Ok(());
        }
        Err(Violation::new("the number of writes is bounded", format!("{writes} writes, at most {limit}")))
    }

    /// Restarts all replicas: the new leader must find nothing to write.
    async fn check_second_pass(&mut self) -> Result<(), Violation> {
        self.world.crash_all();
        self.world.journal().record(EntryKind::Injection, "simulation", "restart all replicas");
        let writes = self.world.writes();
        self.wait_until_quiet(QUIET_AFTER_RESTART).await?;
        match self.world.writes() - writes {
            0 => self.check_quiet(),
            count => Err(Violation::new("a second pass writes nothing", format!("it sent {count} writes"))),
        }
    }
}

// === impl Failure ===

impl From<Violation> for Failure {
    fn from(violation: Violation) -> Self {
        Self::Violation(violation)
    }
}

impl From<serde_json::Error> for Failure {
    fn from(error: serde_json::Error) -> Self {
        Self::Action(error)
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
