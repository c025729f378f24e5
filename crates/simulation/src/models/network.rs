//! Faults of the connections between the replicas and the API server.

use std::time::Duration;

use crate::faults::{Fault, RequestClass};
use crate::model::Model;
use crate::world::World;

/// Longest delay of the events of a watch.
const MAX_WATCH_DELAY: Duration = Duration::from_secs(5);
/// Status codes with which the API server may reject a request.
const CODES: [u16; 5] = [409, 422, 429, 500, 504];
/// Those for Events: the operator does not repeat an Event that is invalid.
const EVENT_CODES: [u16; 4] = [409, 429, 500, 504];
/// Kinds whose watches fall behind those of other kinds.
const WATCHED: [&str; 9] = [
    "/deployments",
    "/services",
    "/inferenceservices",
    "/backendpools",
    "/nodes",
    "/pods",
    "/leaderworkersets",
    "/podgroups",
    "/customresourcedefinitions",
];
/// Longest pages of lists that expire.
const MAX_PAGE_SIZE: usize = 3;

/// Breaks, delays and cuts the connections.
pub(crate) struct Network;

// === impl Network ===

impl Model for Network {
    fn name(&self) -> &'static str {
        "network"
    }

    fn act(&mut self, world: &mut World, random: &mut fastrand::Rng) -> Option<String> {
        let process = world.processes().get(random.usize(..world.processes().len().max(1)))?;
        let (name, faults) = (process.name(), &process.faults);
        match random.u8(..9) {
            0 => {
                faults.cut_watches();
                return Some(format!("end the watches of {name}"));
            }
            1 => {
                faults.cut_watches();
                faults.arm(RequestClass::Watch, Fault::Reject(410), 30);
                return Some(format!("expire the watches of {name}"));
            }
            2 => {
                let (size, count) = (random.usize(1..=MAX_PAGE_SIZE), random.usize(1..5));
                faults.limit_pages(size);
                faults.cut_watches();
                faults.arm(RequestClass::Watch, Fault::Reject(410), 30);
                faults.arm(RequestClass::NextPage, Fault::Reject(410), count);
                return Some(format!(
                    "expire the watches of {name}, and {count} lists of it after the first page of {size} objects"
                ));
            }
            3 | 4 => {
                let resource = WATCHED[random.usize(..WATCHED.len())];
                let delay = MAX_WATCH_DELAY.mul_f64(random.f64());
                faults.delay_watches(resource, delay);
                return Some(format!("delay the watches of {resource} of {name} by {delay:?}"));
            }
            _ => {}
        }
        let class =
            [RequestClass::Read, RequestClass::Write, RequestClass::Write, RequestClass::Lease, RequestClass::Event];
        let class = class[random.usize(..class.len())];
        let fault = match random.u8(..5) {
            0 => Fault::Delay(Duration::from_millis(random.u64(1..20_000))),
            1 => Fault::LostResponse,
            2 => Fault::NoResponse,
            _ if class == RequestClass::Event => Fault::Reject(EVENT_CODES[random.usize(..EVENT_CODES.len())]),
            _ => Fault::Reject(CODES[random.usize(..CODES.len())]),
        };
        let count = random.usize(1..5);
        faults.arm(class, fault, count);
        Some(format!("the next {count} requests of class {class:?} of {name}: {fault}"))
    }

    fn settle(&mut self, world: &mut World) {
        world.processes().iter().for_each(|process| process.faults.clear());
    }
}
