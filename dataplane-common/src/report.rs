//! When a node reports its load: often under load, seldom when idle.

/// The two intervals of periodic reporting, µs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Intervals {
    /// While there is work.
    pub busy_us: u32,
    /// While there is none.
    pub idle_us: u32,
}

impl Intervals {
    /// Time from this report to the next, µs. It travels in the report, so that a receiver knows when silence means
    /// trouble.
    pub fn next_us(&self, busy: bool) -> u32 {
        if busy { self.busy_us } else { self.idle_us }
    }
}

#[cfg(test)]
mod tests {
    use super::Intervals;

    #[test]
    fn idle_nodes_report_seldom() {
        let intervals = Intervals { busy_us: 100, idle_us: 1000 };
        assert_eq!((intervals.next_us(true), intervals.next_us(false)), (100, 1000));
    }
}
