//! Where the programs of one cluster listen: an address of this machine that no other cluster has.
//!
//! A program that is told its port binds it later than the port was chosen. On 127.0.0.1 anybody may take it meanwhile, be
//! it for the near end of a connection; on an address of our own nobody does.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher as _;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};

use anyhow::{Context as _, Result, bail};

/// Who holds this port of an address has the address. Below the ports that systems give away by themselves.
const CLAIM: u16 = 20_000;
/// Ports that are looked at before there is said to be none.
const PORTS: u16 = 1_000;
/// Addresses that are tried; there are millions.
const TRIES: usize = 100;

/// An address of 127.0.0.0/8 as long as this lives.
#[derive(Debug)]
pub(crate) struct Place {
    pub(crate) address: Ipv4Addr,
    claim: TcpListener,
    next: u16,
}

// === impl Place ===

impl Place {
    /// One that nobody has.
    ///
    /// # Errors
    /// This machine lets nobody listen on any.
    pub(crate) fn take() -> Result<Self> {
        let mut refused = None;
        for _ in 0..TRIES {
            let address = any();
            match TcpListener::bind((address, CLAIM)) {
                Ok(claim) => return Ok(Self { address, claim, next: CLAIM }),
                Err(error) => refused = Some(error),
            }
        }
        let why = refused.map(|error| error.to_string()).unwrap_or_default();
        bail!("no address of 127.0.0.0/8 to listen on: {why}")
    }

    /// Another port, at which nothing listens.
    ///
    /// # Errors
    /// There is none.
    pub(crate) fn port(&mut self) -> Result<u16> {
        let free = (self.next.saturating_add(1)..CLAIM + PORTS)
            .find(|port| TcpListener::bind((self.address, *port)).is_ok())
            .with_context(|| format!("no free port at {}", self.address))?;
        self.next = free;
        Ok(free)
    }

    /// The address with `port`.
    pub(crate) fn at(&self, port: u16) -> SocketAddr {
        debug_assert!(self.claim.local_addr().is_ok());
        SocketAddr::from((self.address, port))
    }
}

/// Neither near 127.0.0.1 nor one that ends as networks and broadcasts do.
fn any() -> Ipv4Addr {
    let [a, b, c, ..] = RandomState::new().hash_one(()).to_le_bytes();
    Ipv4Addr::new(127, 64 | a & 63, b, 1 + c % 254)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_of_one_at_a_time_and_a_port_is_given_once() {
        let (mut one, mut other) = (Place::take().unwrap(), Place::take().unwrap());
        assert_ne!(one.address, other.address);
        assert!(TcpListener::bind((one.address, CLAIM)).is_err());
        let ports = [one.port().unwrap(), one.port().unwrap()];
        assert_ne!(ports[0], ports[1]);
        assert!(other.port().is_ok());
    }
}
