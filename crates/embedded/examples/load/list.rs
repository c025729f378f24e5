//! List phase: measures the time to list a collection in a single response and in pages.

use std::time::Instant;

use memchr::{memchr, memmem};

use crate::connection::{Connection, Request};
use crate::measurements::Measurements;
use crate::phase_options::PhaseOptions;
use crate::result::Result;
use crate::target::LoadTarget;

const CONTINUE_TOKEN: &[u8] = b"\"continue\":\"";
const PATH: &str = "/api/v1/configmaps";

/// Runs the phase `list`.
pub(crate) async fn run(target: &LoadTarget, options: &PhaseOptions) -> Result<Measurements> {
    let (rounds, page_size) = (options.get("rounds", 5), options.get("page", 500));
    let mut connection = target.connect().await?;
    let mut list_times = Vec::new();
    let mut bytes = 0;
    for _ in 0..rounds {
        let started = Instant::now();
        bytes = connection.measure(&Request::get(PATH)).await?;
        list_times.push(started.elapsed());
    }
    let mut page_times = Vec::new();
    for _ in 0..rounds.div_ceil(2) {
        let started = Instant::now();
        list_in_pages(&mut connection, page_size).await?;
        page_times.push(started.elapsed());
    }
    let mut measurements = Measurements::default();
    measurements.add("list_mib", bytes as f64 / 1024.0 / 1024.0);
    for (name, mut times) in [("list_ms", list_times), ("list_paged_ms", page_times)] {
        times.sort();
        measurements.add(name, times.get(times.len() / 2).map_or(0.0, |time| time.as_secs_f64() * 1000.0));
    }
    Ok(measurements)
}

/// Lists all objects in pages of `page_size` objects.
async fn list_in_pages(connection: &mut Connection, page_size: usize) -> Result<()> {
    let mut path = format!("{PATH}?limit={page_size}");
    loop {
        let response = connection.send_ok(&Request::get(path)).await?;
        let Some(token) = continue_token(&response) else { return Ok(()) };
        path = format!("{PATH}?limit={page_size}&continue={token}");
    }
}

/// Returns the `continue` token of a list. It needs no URL encoding, because tokens use the URL-safe alphabet.
fn continue_token(response: &[u8]) -> Option<&str> {
    let value = &response[memmem::find(response, CONTINUE_TOKEN)? + CONTINUE_TOKEN.len()..];
    std::str::from_utf8(&value[..memchr(b'"', value)?]).ok().filter(|token| !token.is_empty())
}
