//! The throughput of TCP by loss and round-trip time: Padhye's model, and a simulation of what it models.

use super::super::random::Random;

/// A path and the settings of its sender.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Path {
    /// Round-trip time, s.
    pub rtt_s: f64,
    /// Probability that a segment is lost.
    pub loss: f64,
    /// Retransmission timeout, s.
    pub timeout_s: f64,
    /// Largest window, segments.
    pub window: f64,
}

/// Bytes of a segment.
pub const SEGMENT: f64 = 1460.0;
/// Segments that one acknowledgement covers.
const PER_ACK: f64 = 2.0;

impl Path {
    /// Steady throughput, segments a second (Padhye, Firoiu, Towsley and Kurose, IEEE/ACM ToN 8(2), 2000, equation 30
    /// with the full expression for the probability of a timeout).
    pub fn segments_per_s(&self) -> f64 {
        let Self { rtt_s, loss: p, timeout_s, window } = *self;
        if p <= 0.0 {
            return window / rtt_s;
        }
        let b = PER_ACK;
        let constant = (2.0 + b) / (3.0 * b);
        let mean_window = constant + (8.0 * (1.0 - p) / (3.0 * b * p) + constant * constant).sqrt();
        let backoff =
            1.0 + p + 2.0 * p.powi(2) + 4.0 * p.powi(3) + 8.0 * p.powi(4) + 16.0 * p.powi(5) + 32.0 * p.powi(6);
        let is_limited = mean_window >= window;
        let w = mean_window.min(window);
        let timeout = timeout_probability(p, w);
        let sent = (1.0 - p) / p + w + timeout / (1.0 - p);
        let rounds = if is_limited { b / 8.0 * w + (1.0 - p) / (p * w) + 2.0 } else { b / 2.0 * w + 1.0 };
        sent / (rtt_s * rounds + timeout * backoff * timeout_s / (1.0 - p))
    }

    /// Seconds to transfer `bytes` in steady state, without the round trip that asks for them.
    pub fn transfer_s(&self, bytes: f64) -> f64 {
        bytes / (SEGMENT * self.segments_per_s())
    }

    /// Seconds in which `segments` are sent, lost ones included as in the model, in a simulation of what the model assumes: congestion avoidance in rounds, the first
    /// loss of a round takes the rest of it with it, three duplicate acknowledgements or a timeout that doubles.
    pub fn simulate_s(&self, segments: u64, random: &mut Random) -> f64 {
        let (mut window, mut total, mut time_s) = (1.0f64, 0, 0.0);
        while total < segments {
            let sent = window.floor().max(1.0) as u64;
            let lost_at = (0..sent).find(|_| random.unit() < self.loss);
            time_s += self.rtt_s;
            total += sent;
            let Some(before) = lost_at else {
                window = (window + 1.0 / PER_ACK).min(self.window);
                continue;
            };
            // The acknowledgements of what came before release as many more; those before their first loss come back as
            // duplicates.
            let duplicates = (0..before).take_while(|_| random.unit() >= self.loss).count();
            if before > 0 {
                time_s += self.rtt_s;
                total += before;
            }
            if duplicates >= 3 {
                window = (window / 2.0).max(1.0);
            } else {
                time_s += self.timeouts_s(random);
                window = 1.0;
            }
        }
        time_s
    }

    /// A series of timeouts, each twice the one before up to 64 times the first, until a segment gets through.
    fn timeouts_s(&self, random: &mut Random) -> f64 {
        let (mut time_s, mut factor) = (self.timeout_s, 1.0);
        while random.unit() < self.loss {
            factor = f64::min(factor * 2.0, 64.0);
            time_s += factor * self.timeout_s;
        }
        time_s
    }
}

/// The probability that a loss in a window of `w` ends in a timeout; for small `p` it tends to 3 / w.
fn timeout_probability(p: f64, w: f64) -> f64 {
    let q = 1.0 - p;
    let three = q.powi(3);
    ((1.0 - three) * (1.0 + three * (1.0 - q.powf(w - 3.0))) / (1.0 - q.powf(w))).min(1.0)
}

#[cfg(test)]
mod tests {
    use super::super::super::random::stream;
    use super::*;

    fn bytes_per_s(rtt_s: f64, loss: f64, timeout_s: f64) -> f64 {
        Path { rtt_s, loss, timeout_s, window: 32.0 }.segments_per_s() * SEGMENT
    }

    #[test]
    fn the_model_gives_known_values() {
        for (rtt_s, loss, timeout_s, expected) in [
            (0.02, 0.002, 0.25, 1_323_411.7),
            (0.1, 0.01, 1.0, 101_505.7),
            (0.1, 0.05, 1.0, 27_160.2),
            (0.02, 0.0, 0.25, 2_336_000.0),
        ] {
            let found = bytes_per_s(rtt_s, loss, timeout_s);
            assert!((found - expected).abs() < 0.05, "{found} for {expected}");
        }
        assert!((timeout_probability(1e-4, 30.0) - 0.1004).abs() < 1e-4);
    }

    #[test]
    fn the_simulation_fills_the_window_without_loss_and_slows_with_it() {
        let path = Path { rtt_s: 0.1, loss: 0.0, timeout_s: 1.0, window: 32.0 };
        let time_s = path.simulate_s(100_000, &mut stream(1, 1));
        assert!((time_s / (100_000.0 / 320.0) - 1.0).abs() < 0.02, "{time_s}");
        let lossy = Path { loss: 0.02, ..path };
        assert!(lossy.simulate_s(100_000, &mut stream(1, 1)) > 2.0 * time_s);
    }
}
