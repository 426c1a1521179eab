//! Who a member is to SWIM.

use std::net::SocketAddr;

/// One life of a member. Of two with one address the later life is the present one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Identity {
    /// The node's id.
    pub node: u16,
    /// Boot epoch.
    pub epoch: u32,
    /// Counts how often this boot was declared down by others and came back, as a process does that was stopped for a while.
    pub life: u16,
    /// Address on the management network.
    pub address: SocketAddr,
}

impl Identity {
    /// The identity behind `address` when nothing else is known of it: good for a first greeting only.
    pub(super) const fn unknown(address: SocketAddr) -> Self {
        Self { node: 0, epoch: 0, life: 0, address }
    }

    /// True when `self` is a later boot, or a later life of the same boot, than `other`. Epochs are compared in serial
    /// arithmetic (RFC 1982), as the data path compares them.
    pub fn is_later_than(&self, other: &Self) -> bool {
        match self.epoch.wrapping_sub(other.epoch) as i32 {
            0 => (self.life, self.node) > (other.life, other.node),
            difference => difference > 0,
        }
    }
}

impl foca::Identity for Identity {
    type Addr = SocketAddr;

    fn renew(&self) -> Option<Self> {
        Some(Self { life: self.life.checked_add(1)?, ..*self })
    }

    fn addr(&self) -> SocketAddr {
        self.address
    }

    fn win_addr_conflict(&self, adversary: &Self) -> bool {
        self.is_later_than(adversary)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use foca::Identity as _;

    fn identity(epoch: u32, life: u16) -> Identity {
        Identity { node: 1, epoch, life, address: "127.0.0.1:1".parse().unwrap() }
    }

    #[test]
    fn a_later_boot_and_a_later_life_win() {
        assert!(identity(2, 0).win_addr_conflict(&identity(1, 9)));
        assert!(identity(1, 1).win_addr_conflict(&identity(1, 0)));
        assert!(!identity(1, 1).win_addr_conflict(&identity(1, 1)));
        assert!(identity(3, 0).win_addr_conflict(&identity(u32::MAX - 3, 0)), "epochs wrap");
        let renewed = identity(1, 0).renew().unwrap();
        assert!(renewed.win_addr_conflict(&identity(1, 0)));
        assert_eq!(identity(1, u16::MAX).renew(), None);
    }
}
