//! What a decision costs in user space, by policy and number of nodes: `cargo bench -p dataplane-common`.
//!
//! Each decision draws another random number, so that samples fall on rows that are not in the first-level cache when there
//! are many, and finds the nodes with other loads.

#[path = "support/table.rs"]
mod table;

use std::hint::black_box;

use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use dataplane_common::maps::Params;
use dataplane_common::policy::{PolicyKind, decide};
use table::{Jobs, NODES, Table};

fn decisions(criterion: &mut Criterion) {
    for kind in PolicyKind::ALL {
        let params = Params { policy: *kind as u32, policies: kind.bit(), ..Params::DEFAULT };
        let mut group = criterion.benchmark_group(kind.name());
        for nodes in NODES {
            let table = Table::new(nodes - 1);
            let mut jobs = Jobs::default();
            group.bench_function(BenchmarkId::from_parameter(nodes), |bencher| {
                bencher.iter(|| {
                    let job = jobs.next();
                    table.shift(job.random);
                    decide(*kind as u32, black_box(&job), &params, &&table)
                });
            });
        }
    }
}

criterion_group! {
    name = benches;
    config = Criterion::default()
        .sample_size(30)
        .warm_up_time(std::time::Duration::from_millis(100))
        .measurement_time(std::time::Duration::from_millis(300));
    targets = decisions
}
criterion_main!(benches);
