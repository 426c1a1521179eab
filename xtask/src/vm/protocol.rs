//! What the guest says on its serial console about the run itself, in lines of their own among all others.
//!
//! ```text
//! DATAPLANE-VM begin 6.12.117+deb13-amd64    the guest is up and its modules are loaded
//! DATAPLANE-VM phase netns                   the tests that follow are of this kind
//! DATAPLANE-VM end 0                         the job has ended with this status
//! ```
//!
//! A guest that stops without the last line has failed, whatever it said before.

use crate::test::output::Kind;

/// What every line of the protocol begins with.
pub const MARK: &str = "DATAPLANE-VM";

/// A line of the protocol.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// The guest is up; the release of its kernel.
    Begin(String),
    /// Tests of a kind follow.
    Phase(Kind),
    /// The job has ended; its exit status.
    End(i32),
}

impl Event {
    /// The event in a line of the console; the kernel may have written something in front of it.
    pub fn parse(line: &str) -> Option<Self> {
        let (_, rest) = line.split_once(MARK)?;
        let mut words = rest.split_whitespace();
        match (words.next()?, words.next()?, words.next()) {
            ("begin", release, None) => Some(Self::Begin(release.to_owned())),
            ("phase", kind, None) => Kind::ALL.into_iter().find(|known| known.to_string() == kind).map(Self::Phase),
            ("end", status, None) => status.parse().ok().map(Self::End),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_found_behind_what_the_kernel_says() {
        let begin = Event::parse("DATAPLANE-VM begin 6.12.117+deb13-amd64");
        assert_eq!(begin, Some(Event::Begin("6.12.117+deb13-amd64".to_owned())));
        assert_eq!(Event::parse("[    3.1] clocksource: tsc DATAPLANE-VM end 101"), Some(Event::End(101)));
        for kind in Kind::ALL {
            assert_eq!(Event::parse(&format!("DATAPLANE-VM phase {kind}")), Some(Event::Phase(kind)));
        }
    }

    #[test]
    fn a_line_cut_short_or_of_something_else_is_no_event() {
        for line in ["", "DATAPLANE-VM", "DATAPLANE-VM end", "DATAPLANE-VM end x", "DATAPLANE-VM end 0 1", "end 0"] {
            assert_eq!(Event::parse(line), None, "{line}");
        }
    }
}
