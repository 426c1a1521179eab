use clap::Parser;
use dataplane_bench::sim::matrix::cells;

use super::*;

#[derive(Parser)]
struct Line {
    #[command(flatten)]
    cell: Cell,
}

fn scenario(options: &[String]) -> Result<Scenario> {
    let words = std::iter::once("cell".to_owned()).chain(options.iter().cloned());
    Line::try_parse_from(words)?.cell.scenario()
}

fn words(text: &str) -> Vec<String> {
    text.split(' ').map(str::to_owned).collect()
}

#[test]
fn the_options_of_a_scenario_describe_it() {
    let (mut cells, _) = cells::full();
    let failures = vec![Failure { node: 2, at_ns: 5_000_000, until_ns: Some(7_500_000) }];
    let reports = Reports { mode: ReportMode::KFinish(755), piggyback: false, gap_ns: 1_500, ..Reports::default() };
    let forwarding = Forwarding { wire_ns_per_byte_q16: 52_429, ..Scenario::default().forwarding };
    let rare = Scenario {
        failures,
        reports,
        forwarding,
        ingress: Ingress::Weights(vec![0.5, 2.0]),
        guard: false,
        egress: Egress::Ingress,
        pull: Pull::Always,
        classes: vec![1.0, 0.5],
        ..Scenario::default()
    };
    cells.push(cells::Cell::new(cells::Group::Others, rare));
    for cell in cells {
        let options = cell.scenario.options();
        assert_eq!(scenario(&options).unwrap(), cell.scenario, "{options:?}");
    }
}

#[test]
fn impossible_options_are_refused_with_the_reason() {
    for (options, part) in [
        ("--workload magic", "no workload magic; there are exp"),
        ("--ingress skew:2", "share 2 of node 0"),
        ("--fail 1", "NODE@MS"),
        ("--warm-up 1", "--warm-up 1"),
        ("--trace /nonexistent.pcap", "/nonexistent.pcap"),
        ("--trace /nonexistent.pcap --cost rot13=1", "no function rot13"),
        ("--trace a.pcap --workload exp", "cannot be used with"),
        ("--cost spin=1", "--trace"),
    ] {
        let error = format!("{:#}", scenario(&words(options)).unwrap_err());
        assert!(error.contains(part), "{options}: {error}");
    }
}
