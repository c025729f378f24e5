//! Faults of the connections between the replicas and the API server.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::faults::{Fault, RequestClass};
use crate::model::Model;
use crate::world::World;

/// Longest delay of the events of a watch.
const MAX_WATCH_DELAY: Duration = Duration::from_secs(5);
/// Longest delay of a request, in milliseconds.
const MAX_REQUEST_DELAY: u64 = 40_000;
/// Status codes with which the API server may reject a request.
const CODES: [u16; 5] = [409, 422, 429, 500, 504];
/// Those for Events: the operator does not repeat an Event that is invalid.
const EVENT_CODES: [u16; 4] = [409, 429, 500, 504];
/// Kinds whose watches fall behind those of other kinds.
const WATCHED: [&str; 17] = [
    "/acceleratorclasses",
    "/clusterbasemodels",
    "/clusterservingruntimes",
    "/llmusecasesets",
    "/inferencepools",
    "/httproutes",
    "/deployments",
    "/services",
    "/serviceaccounts",
    "/configmaps",
    "/inferenceservices",
    "/backendpools",
    "/nodes",
    "/pods",
    "/leaderworkersets",
    "/podgroups",
    "/customresourcedefinitions",
];
/// Classes of requests with faults. Writes are the most interesting ones.
const CLASSES: [RequestClass; 6] = [
    RequestClass::Read,
    RequestClass::Watch,
    RequestClass::Write,
    RequestClass::Write,
    RequestClass::Lease,
    RequestClass::Event,
];
/// Longest pages of lists that expire.
const MAX_PAGE_SIZE: usize = 3;
/// Number of watches: each of a process expires once.
const WATCHES: usize = 30;

/// Breaks, delays and cuts the connections.
pub(crate) struct Network;

/// What happens to the connection of a process.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase")]
pub(crate) enum NetworkAction {
    /// Ends all watches.
    EndWatches { process: String },
    /// Ends all watches; their versions have expired.
    ExpireWatches { process: String },
    /// The same, and this number of lists expires after the first page.
    ExpireLists { process: String, page_size: usize, count: usize },
    /// Delays the events of the watches whose path contains the text.
    DelayWatches { process: String, resource: String, delay: Duration },
    /// Applies a fault to the next requests of a class.
    FailRequests { process: String, class: RequestClass, fault: Fault, count: usize },
}

// === impl Network ===

impl Model for Network {
    type Action = NetworkAction;

    fn name(&self) -> &'static str {
        "network"
    }

    fn draw(&self, world: &World, random: &mut fastrand::Rng) -> Vec<NetworkAction> {
        let process = world.processes().get(random.usize(..world.processes().len().max(1)));
        let Some(process) = process.map(|process| process.name().to_owned()) else { return Vec::new() };
        vec![match random.u8(..9) {
            0 => NetworkAction::EndWatches { process },
            1 => NetworkAction::ExpireWatches { process },
            2 => {
                let (page_size, count) = (random.usize(1..=MAX_PAGE_SIZE), random.usize(1..5));
                NetworkAction::ExpireLists { process, page_size, count }
            }
            3 | 4 => {
                let resource = WATCHED[random.usize(..WATCHED.len())].to_owned();
                NetworkAction::DelayWatches { process, resource, delay: MAX_WATCH_DELAY.mul_f64(random.f64()) }
            }
            _ => {
                let class = CLASSES[random.usize(..CLASSES.len())];
                let fault = random_fault(class, random);
                NetworkAction::FailRequests { process, class, fault, count: random.usize(1..5) }
            }
        }]
    }

    fn act(&mut self, world: &mut World, action: NetworkAction) -> Option<String> {
        let faults = |process: &str| world.process(process).map(|process| &process.faults);
        Some(match action {
            NetworkAction::EndWatches { process } => {
                faults(&process)?.cut_watches();
                format!("end the watches of {process}")
            }
            NetworkAction::ExpireWatches { process } => {
                let faults = faults(&process)?;
                faults.cut_watches();
                faults.arm(RequestClass::Watch, Fault::Reject(410), WATCHES);
                format!("expire the watches of {process}")
            }
            NetworkAction::ExpireLists { process, page_size, count } => {
                let faults = faults(&process)?;
                faults.limit_pages(page_size);
                faults.cut_watches();
                faults.arm(RequestClass::Watch, Fault::Reject(410), WATCHES);
                faults.arm(RequestClass::NextPage, Fault::Reject(410), count);
                format!(
                    "expire the watches of {process}, and {count} lists of it after the first page of {page_size} objects"
                )
            }
            NetworkAction::DelayWatches { process, resource, delay } => {
                let text = format!("delay the watches of {resource} of {process} by {delay:?}");
                faults(&process)?.delay_watches(resource, delay);
                text
            }
            NetworkAction::FailRequests { process, class, fault, count } => {
                faults(&process)?.arm(class, fault, count);
                format!("the next {count} requests of class {class:?} of {process}: {fault}")
            }
        })
    }

    fn settle(&mut self, world: &mut World) {
        world.processes().iter().for_each(|process| process.faults.clear());
    }
}

fn random_fault(class: RequestClass, random: &mut fastrand::Rng) -> Fault {
    let codes = if class == RequestClass::Event { EVENT_CODES.as_slice() } else { CODES.as_slice() };
    match random.u8(..6) {
        0 => Fault::Delay(Duration::from_millis(random.u64(1..MAX_REQUEST_DELAY))),
        1 => Fault::LostResponse,
        2 => Fault::Unprocessed,
        3 => Fault::Unanswered,
        _ => Fault::Reject(codes[random.usize(..codes.len())]),
    }
}
