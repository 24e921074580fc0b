//! The addresses of network namespaces: link-local ones, never routed, two for each namespace. No two processes of
//! the machine get the same ones.

use std::{
    net::Ipv4Addr,
    os::{
        linux::net::SocketAddrExt,
        unix::net::{SocketAddr, UnixListener},
    },
};

use anyhow::{Context, Result};

/// 169.254.77.0/24, of which each namespace has a /30.
const NETWORK: [u8; 3] = [169, 254, 77];
/// As many networks of four addresses as a /24 holds.
const PAIRS: u8 = 64;

/// The two ends of a namespace's wire.
#[derive(Debug)]
pub(super) struct Pair {
    number: u8,
    /// A name that only one process on the machine can hold, and that vanishes with its holder.
    _claim: UnixListener,
}

impl Pair {
    /// Claims a pair that nobody else has.
    pub(super) fn claim() -> Result<Self> {
        (0..PAIRS).find_map(Self::try_claim).context("all networks for namespaces are taken")
    }

    fn try_claim(number: u8) -> Option<Self> {
        let name = SocketAddr::from_abstract_name(format!("kube-provisioner-network-{number}")).ok()?;
        Some(Self { number, _claim: UnixListener::bind_addr(&name).ok()? })
    }

    /// The number of the pair: on this machine no other has it.
    pub(super) const fn number(&self) -> u8 {
        self.number
    }

    /// The end outside of the namespace.
    pub(super) fn host(&self) -> Ipv4Addr {
        address(self.number, 1)
    }

    /// The end within.
    pub(super) fn inside(&self) -> Ipv4Addr {
        address(self.number, 2)
    }
}

/// All addresses that can be outside of a namespace: a server's certificate names them.
pub(crate) fn all_hosts() -> impl Iterator<Item = Ipv4Addr> {
    (0..PAIRS).map(|number| address(number, 1))
}

const fn address(number: u8, end: u8) -> Ipv4Addr {
    let [a, b, c] = NETWORK;
    Ipv4Addr::new(a, b, c, (number % PAIRS) * 4 + end)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn two_pairs_have_four_addresses_and_those_outside_are_known_before() {
        let pairs = [Pair::claim().unwrap(), Pair::claim().unwrap()];
        let ends: BTreeSet<Ipv4Addr> = pairs.iter().flat_map(|pair| [pair.host(), pair.inside()]).collect();
        assert_eq!(ends.len(), 4);
        assert!(pairs.iter().all(|pair| all_hosts().any(|host| host == pair.host())));
        assert_eq!(all_hosts().collect::<BTreeSet<_>>().len(), usize::from(PAIRS));
    }
}
