//! What the tests of this crate share: frames, and a node's maps and programs in a network namespace of their own.
#![allow(dead_code, reason = "each test binary uses its own part of this")]

pub mod frames;
pub mod node;
pub mod random;
pub mod words;
