//! The XDP programs of the built object, run by the kernel, against tables of cases.
//!
//! A case is a description, a frame, and everything that must come of it: verdict, frame, metadata, counters and words
//! of the tables. Whatever is not listed must not change; a failure prints all that did. Needs root.

mod support;

#[path = "xdp_verdicts/case.rs"]
mod case;
#[path = "xdp_verdicts/ingress.rs"]
mod ingress;
#[path = "xdp_verdicts/link.rs"]
mod link;
#[path = "xdp_verdicts/loads.rs"]
mod loads;
#[path = "xdp_verdicts/order.rs"]
mod order;
#[path = "xdp_verdicts/peer.rs"]
mod peer;
#[path = "xdp_verdicts/policies.rs"]
mod policies;
#[path = "xdp_verdicts/results.rs"]
mod results;
#[path = "xdp_verdicts/seals.rs"]
mod seals;
#[path = "xdp_verdicts/truncated.rs"]
mod truncated;
#[path = "xdp_verdicts/verifier.rs"]
mod verifier;
