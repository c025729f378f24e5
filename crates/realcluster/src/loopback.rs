//! A loopback address for each cluster.
//!
//! A component's port is chosen before the component binds it. On 127.0.0.1, another process or an outgoing connection
//! may bind the port in the meantime; a separate address for each cluster avoids this race.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher as _;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};

use anyhow::{Context as _, Result, bail};

/// An address belongs to the cluster that listens on this port of it. The port is below the ephemeral port range.
const RESERVATION_PORT: u16 = 20_000;
/// Number of ports to try.
const PORT_COUNT: u16 = 1_000;
/// Number of addresses to try.
const MAX_ATTEMPTS: usize = 100;

/// An address of 127.0.0.0/8, reserved until the value is dropped.
#[derive(Debug)]
pub(crate) struct LoopbackAddress {
    pub(crate) address: Ipv4Addr,
    reservation: TcpListener,
    last_port: u16,
}

// === impl LoopbackAddress ===

impl LoopbackAddress {
    /// Reserves an unused address.
    ///
    /// # Errors
    /// No address can be bound.
    pub(crate) fn reserve() -> Result<Self> {
        let mut last_error = None;
        for _ in 0..MAX_ATTEMPTS {
            let address = random_address();
            match TcpListener::bind((address, RESERVATION_PORT)) {
                Ok(reservation) => return Ok(Self { address, reservation, last_port: RESERVATION_PORT }),
                Err(error) => last_error = Some(error),
            }
        }
        let reason = last_error.map(|error| error.to_string()).unwrap_or_default();
        bail!("failed to reserve an address of 127.0.0.0/8: {reason}")
    }

    /// Returns the next free port.
    ///
    /// # Errors
    /// No port is free.
    pub(crate) fn next_port(&mut self) -> Result<u16> {
        let port = (self.last_port.saturating_add(1)..RESERVATION_PORT + PORT_COUNT)
            .find(|port| TcpListener::bind((self.address, *port)).is_ok())
            .with_context(|| format!("no free port on {}", self.address))?;
        self.last_port = port;
        Ok(port)
    }

    /// Returns the socket address of `port`.
    pub(crate) fn socket_address(&self, port: u16) -> SocketAddr {
        debug_assert!(self.reservation.local_addr().is_ok());
        SocketAddr::from((self.address, port))
    }
}

/// Returns a random address that is neither near 127.0.0.1 nor a network or broadcast address.
fn random_address() -> Ipv4Addr {
    let [a, b, c, ..] = RandomState::new().hash_one(()).to_le_bytes();
    Ipv4Addr::new(127, 64 | a & 63, b, 1 + c % 254)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_exclusive_and_ports_are_unique() {
        let (mut first, mut second) = (LoopbackAddress::reserve().unwrap(), LoopbackAddress::reserve().unwrap());
        assert_ne!(first.address, second.address);
        assert!(TcpListener::bind((first.address, RESERVATION_PORT)).is_err());
        let ports = [first.next_port().unwrap(), first.next_port().unwrap()];
        assert_ne!(ports[0], ports[1]);
        assert!(second.next_port().is_ok());
    }
}
