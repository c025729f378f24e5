//! Engines, objects and load for measurements of gateways. `cargo xtask bench gateway` runs it.
//!
//! Usage:
//! - `gateway_load engines ADDRESS` serves simulated engines without delays on `ADDRESS`
//! - `gateway_load setup KUBECONFIG PORT ENDPOINTS [DIRECTORY]` creates a pool of `ENDPOINTS` engines on `PORT`, and the
//!   CustomResourceDefinitions in `DIRECTORY`
//! - `gateway_load requests ADDRESS BODY_BYTES SECONDS` sends chat completions and prints measurements as `name value` lines

mod engines;
mod metrics_page;
mod objects;
mod requests;
mod result;
mod workload;

use std::{io::Write as _, time::Duration};

use result::Result;

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments.as_slice() {
        ["engines", address] => engines::serve(address),
        ["setup", kubeconfig, port, endpoints, definitions @ ..] => {
            let directory = definitions.first().map(std::path::Path::new);
            objects::create(kubeconfig.as_ref(), port.parse()?, endpoints.parse()?, directory)
        }
        ["requests", address, body_bytes, seconds] => {
            let duration = Duration::from_secs_f64(seconds.parse()?);
            let results = requests::send(address.parse()?, body_bytes.parse()?, duration)?;
            results.into_iter().try_for_each(|(name, value)| writeln!(std::io::stdout(), "{name} {value}"))?;
            Ok(())
        }
        _ => Err("usage: gateway_load engines ADDRESS | setup KUBECONFIG PORT ENDPOINTS [DIRECTORY] | requests ADDRESS BODY_BYTES SECONDS".into()),
    }
}
