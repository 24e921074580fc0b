//! Ports on loopback that nobody else takes, also not while their owner restarts.

use std::{
    hash::{BuildHasher, Hasher, RandomState},
    net::{Ipv4Addr, SocketAddrV4, TcpListener},
    os::{
        linux::net::SocketAddrExt,
        unix::net::{SocketAddr, UnixListener},
    },
};

use anyhow::{Result, bail};

/// Below the range from which the kernel takes ports for outgoing connections: between the test and the use of a
/// port, or while a server restarts, no client can be given it.
pub(crate) const RANGE: std::ops::Range<u64> = 20_000..32_000;

const ATTEMPTS: usize = 200;

/// A port that is ours as long as this value lives.
#[derive(Debug)]
pub struct Port {
    address: Ipv4Addr,
    number: u16,
    /// A name that only one process on the machine can hold, and that vanishes with its holder: other control
    /// planes see the port as taken even while nothing listens on it.
    _claim: UnixListener,
}

impl Port {
    /// Finds and claims a free port.
    ///
    /// # Errors
    /// If no free port is found.
    pub fn claim() -> Result<Self> {
        for _ in 0..ATTEMPTS {
            if let Some(port) = candidate().and_then(Self::try_claim) {
                return Ok(port);
            }
        }
        bail!("no free port between {} and {} on 127.0.0.1", RANGE.start, RANGE.end)
    }

    /// The number of the port.
    #[must_use]
    pub const fn number(&self) -> u16 {
        self.number
    }

    /// The same port of another address of this machine, or of a network namespace.
    #[must_use]
    pub fn at(self, address: Ipv4Addr) -> Self {
        Self { address, ..self }
    }

    /// Address and port.
    #[must_use]
    pub const fn socket(&self) -> SocketAddrV4 {
        SocketAddrV4::new(self.address, self.number)
    }

    fn try_claim(number: u16) -> Option<Self> {
        let name = SocketAddr::from_abstract_name(format!("kube-provisioner-port-{number}")).ok()?;
        let claim = UnixListener::bind_addr(&name).ok()?;
        TcpListener::bind((Ipv4Addr::LOCALHOST, number)).ok()?;
        Some(Self { address: Ipv4Addr::LOCALHOST, number, _claim: claim })
    }
}

fn candidate() -> Option<u16> {
    let random = RandomState::new().build_hasher().finish();
    u16::try_from(RANGE.start + random % (RANGE.end - RANGE.start)).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_claimed_port_is_not_given_twice_and_free_again_after_its_owner() {
        let port = Port::claim().unwrap();
        let number = port.number();
        assert!(Port::try_claim(number).is_none());
        drop(port);
        assert!(Port::try_claim(number).is_some());
    }

    #[test]
    fn a_port_that_someone_listens_on_is_not_claimed() {
        let port = Port::claim().unwrap();
        let number = port.number();
        // A child that another test starts has a copy of the probing socket until its program is loaded.
        let mut binds = std::iter::repeat_with(|| TcpListener::bind((Ipv4Addr::LOCALHOST, number)));
        let listener = binds.by_ref().take(1_000_000).find_map(Result::ok).unwrap();
        drop(port);
        assert!(Port::try_claim(number).is_none());
        drop(listener);
    }
}
