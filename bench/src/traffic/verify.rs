//! Checks that the cluster computed what was asked, by computing a sample of the results again after the run.

use dataplane_user::functions::{Builtin, Call};

/// Results kept of each kind of packet.
const SAMPLES_PER_KIND: usize = 64;
/// Of how many packets one is kept, until there are enough.
const STRIDE: u64 = 61;

/// A result to be computed again.
struct Sample {
    function: Builtin,
    operand: Option<u32>,
    payload: Vec<u8>,
    result: Vec<u8>,
}

/// The sample of one run.
#[derive(Default)]
pub struct Samples {
    kept: Vec<Sample>,
    of_kind: Vec<usize>,
}

impl Samples {
    /// An empty sample for so many kinds.
    pub fn new(kinds: usize) -> Self {
        Self { kept: Vec::new(), of_kind: vec![0; kinds] }
    }

    /// Looks at a result, and keeps it if it is one of the sample. Cheap for all others.
    pub fn offer(
        &mut self,
        sequence: u64,
        kind: usize,
        function: Builtin,
        operand: Option<u32>,
        payload: &[u8],
        result: &[u8],
    ) {
        let has_result = function.result_bytes() > 0;
        if has_result && sequence.is_multiple_of(STRIDE) && self.of_kind[kind] < SAMPLES_PER_KIND {
            self.of_kind[kind] += 1;
            self.kept.push(Sample { function, operand, payload: payload.to_vec(), result: result.to_vec() });
        }
    }

    /// Computes every kept result again; true for each that is right.
    pub fn check(self) -> impl Iterator<Item = bool> {
        self.kept.into_iter().map(|sample| {
            let mut payload = sample.payload;
            let mut expected = vec![0; sample.function.result_bytes()];
            let operand = sample.operand.unwrap_or(0);
            sample.function.compute(Call { payload: &mut payload, operand, result: &mut expected });
            sample.result.get(..expected.len()) == Some(expected.as_slice())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // "123456789" is the usual check input of CRC-32, cbf43926 its check value.
    const RIGHT: [u8; 4] = [0xcb, 0xf4, 0x39, 0x26];

    #[test]
    fn wrong_and_short_results_are_noticed() {
        let mut samples = Samples::new(1);
        for result in [&RIGHT[..], &[0; 4], &RIGHT[..3]] {
            samples.offer(0, 0, Builtin::Crc32, None, b"123456789", result);
        }
        assert_eq!(samples.check().collect::<Vec<_>>(), [true, false, false]);
    }

    #[test]
    fn the_sample_is_bounded_and_leaves_out_functions_without_result() {
        let mut samples = Samples::new(2);
        for sequence in 0..100_000 {
            samples.offer(sequence, 0, Builtin::Crc32, None, b"123456789", &RIGHT);
            samples.offer(sequence, 1, Builtin::Forward, None, b"", b"");
        }
        assert_eq!(samples.check().count(), SAMPLES_PER_KIND);
    }
}
