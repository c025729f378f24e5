//! Crashes of processes, and the clocks of machines.

use jiff::SignedDuration;
use serde::{Deserialize, Serialize};

use crate::model::Model;
use crate::process::Process;
use crate::world::World;

/// Polls within which a crash happens: a reconcile takes tens.
const MAX_POLLS: u32 = 120;
/// In seconds.
const MAX_CLOCK_ERROR: i64 = 300;
/// Name of the machine of the API server and the controllers of Kubernetes.
const API_SERVER: &str = "api-server";

/// Crashes and restarts processes, and sets their clocks and that of the API server.
pub(crate) struct Machines;

/// What happens to a machine or its process.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum MachineAction {
    /// Sets a clock to this number of seconds from the correct time.
    SetClock { machine: String, seconds: i64 },
    /// Starts a process that has crashed.
    Start { process: String },
    /// Crashes a process at its poll of this number from now on.
    Crash { process: String, polls: u32 },
}

// === impl Machines ===

impl Model for Machines {
    type Action = MachineAction;

    fn name(&self) -> &'static str {
        "machines"
    }

    fn draw(&self, world: &World, random: &mut fastrand::Rng) -> Vec<MachineAction> {
        let index = random.usize(..=world.processes().len());
        let seconds = |random: &mut fastrand::Rng| random.i64(-MAX_CLOCK_ERROR..=MAX_CLOCK_ERROR);
        let Some(process) = world.processes().get(index) else {
            return vec![MachineAction::SetClock { machine: API_SERVER.to_owned(), seconds: seconds(random) }];
        };
        let name = process.name().to_owned();
        vec![match (process.is_running(), random.bool()) {
            (false, _) => MachineAction::Start { process: name },
            (true, true) => MachineAction::SetClock { machine: name, seconds: seconds(random) },
            (true, false) => MachineAction::Crash { process: name, polls: random.u32(1..MAX_POLLS) },
        }]
    }

    fn act(&mut self, world: &mut World, action: MachineAction) -> Option<String> {
        match action {
            MachineAction::SetClock { machine, seconds } => {
                let process = world.process(&machine).map(|process| &process.clock);
                let clock = process.or_else(|| (machine == API_SERVER).then(|| world.clock()))?;
                clock.set_error(SignedDuration::from_secs(seconds));
                Some(format!("set the clock of {machine} to {seconds:+} s"))
            }
            MachineAction::Start { process } => world.start_process(&process).then(|| format!("start {process}")),
            MachineAction::Crash { process, polls } => {
                world.process(&process).filter(|process| process.is_running())?.crash_after(Some(polls));
                Some(format!("crash {process} at its poll {polls} from now"))
            }
        }
    }

    fn settle(&mut self, world: &mut World) {
        let names: Vec<&str> = world.processes().iter().map(Process::name).collect();
        for name in names {
            world.start_process(name);
        }
        world.processes().iter().for_each(|process| process.crash_after(None));
        world.clocks().for_each(|clock| clock.set_error(SignedDuration::ZERO));
    }
}
