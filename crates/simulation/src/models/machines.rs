//! Crashes of processes, and the clocks of machines.

use jiff::SignedDuration;

use crate::clock::Clock;
use crate::model::Model;
use crate::world::World;

/// Polls within which a crash happens: a reconcile takes tens.
const MAX_POLLS: u32 = 120;
/// In seconds.
const MAX_CLOCK_ERROR: i64 = 300;

/// Crashes and restarts processes, and sets their clocks and that of the API server.
pub(crate) struct Machines;

// === impl Machines ===

impl Model for Machines {
    fn name(&self) -> &'static str {
        "machines"
    }

    fn act(&mut self, world: &mut World, random: &mut fastrand::Rng) -> Option<String> {
        let index = random.usize(..=world.processes().len());
        if index == world.processes().len() {
            let seconds = set_clock(world.clock(), random);
            return Some(format!("set the clock of the API server to {seconds:+} s"));
        }
        if let Some(name) = world.start_process(index) {
            return Some(format!("start {name}"));
        }
        let process = world.processes().get(index)?;
        let name = process.name();
        if random.bool() {
            let seconds = set_clock(&process.clock, random);
            return Some(format!("set the clock of {name} to {seconds:+} s"));
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
        world.clocks().for_each(|clock| clock.set_error(SignedDuration::ZERO));
    }
}

/// Sets a clock to at most [`MAX_CLOCK_ERROR`] seconds from the correct time, and returns the difference.
fn set_clock(clock: &Clock, random: &mut fastrand::Rng) -> i64 {
    let seconds = random.i64(-MAX_CLOCK_ERROR..=MAX_CLOCK_ERROR);
    clock.set_error(SignedDuration::from_secs(seconds));
    seconds
}
