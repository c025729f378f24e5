//! Crashes of replicas, and their clocks.

use jiff::SignedDuration;

use crate::model::Model;
use crate::world::World;

/// Polls within which a crash happens: a reconcile takes tens.
const MAX_POLLS: u32 = 120;

/// Crashes and restarts replicas of the operator, and sets their clocks.
pub(crate) struct Machines;

// === impl Machines ===

impl Model for Machines {
    fn name(&self) -> &'static str {
        "machines"
    }

    fn act(&mut self, world: &mut World, random: &mut fastrand::Rng) -> Option<String> {
        let index = random.usize(..world.processes().len().max(1));
        if let Some(name) = world.start_process(index) {
            return Some(format!("start {name}"));
        }
        let process = world.processes().get(index)?;
        let name = process.name();
        if random.bool() {
            let seconds = random.i64(-300..=300);
            process.clock.step(SignedDuration::from_secs(seconds));
            return Some(format!("set the clock of {name} by {seconds} s"));
        }
        let polls = random.u32(1..MAX_POLLS);
        process.crash_after(Some(polls));
        Some(format!("crash {name} at its poll {polls} from now"))
    }

    fn settle(&mut self, world: &mut World) {
        for index in 0..world.processes().len() {
            world.start_process(index);
        }
        world.processes().iter().for_each(|process| process.crash_after(None));
    }
}
