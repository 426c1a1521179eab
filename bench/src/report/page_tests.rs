use std::fs;

use serde_json::json;

use super::*;
use crate::traffic::Distribution;
use crate::{interconnect, latency, throughput, trials};

fn environment() -> Value {
    json!({"cpu": "<cpu>", "cores": 2, "kernel": "6.18", "version": "1"})
}

fn lines(benchmark: &str, values: &[Value]) -> String {
    let head = json!({"schema": trials::SCHEMA, "benchmark": benchmark, "environment": environment()});
    std::iter::once(&head).chain(values).map(|value| format!("{value}\n")).collect()
}

fn transports() -> Value {
    let spread = |median: f64| json!({"min": median / 2.0, "median": median, "max": median * 2.0, "count": 5});
    let trip = |transport: &str, p50_us: f64, ratio: Value| {
        json!({"waiting": "spinning", "frame_bytes": 74, "place": "there", "transport": transport, "p50_us": spread(p50_us),
               "p99_us": spread(40.0), "p999_us": spread(80.0), "udp_through_this": ratio, "lost": 7,
               "computed_there": spread(1.0), "others": spread(0.1)})
    };
    let flood = |transport: &str, rate: f64| {
        json!({"transport": transport, "rate": spread(rate), "rate_to_udp": null, "cpu_ns": spread(300.0),
               "threads_ns": spread(0.0), "cpu_to_udp": null, "others": spread(0.1)})
    };
    json!({"schema": interconnect::SCHEMA, "environment": environment(), "enough_rounds": false,
           "round_trips": [trip("xsk", 16.0, spread(1.75)), trip("udp", 28.0, Value::Null)],
           "floods": [flood("xdp", 2e6), flood("udp", 4e5)],
           "goals": [{"name": "CPU < half", "wanted": 0.25, "found": 0.1, "met": true}],
           "failures": ["round 1: xsk: no answer"]})
}

fn results(name: &str) -> Results {
    let directory = std::env::temp_dir().join(format!("dpt-{}-report-{name}", std::process::id()));
    fs::create_dir_all(&directory).unwrap();
    let mut distribution = Distribution::default();
    (1..=10_000).for_each(|n| distribution.record(n * 100));
    let bounds =
        json!({"goal": {"name": "NDR"}, "lower": 1_000_000, "upper": 1_100_000, "conditional_throughput": 1e6});
    let level = json!({"percent": 50, "rate": 1e4, "counts": {"sent": 10_003}, "lost": 3, "latency": distribution,
                       "noise": {"others": 0.1}});
    let node = |forwarded: u64| json!({"node": 1, "resident_kib": 9_000, "local": 100, "forwarded": forwarded});
    let files = [
        (
            "throughput.json",
            json!({"schema": throughput::SCHEMA, "environment": environment(),
                   "contenders": [{"name": "a & b", "found": [bounds]}]})
            .to_string(),
        ),
        (
            "latency.json",
            json!({"schema": latency::SCHEMA, "environment": environment(), "levels": [level]}).to_string(),
        ),
        ("interconnect.json", transports().to_string()),
        ("loss.jsonl", lines("loss", &[10, 20].map(|load| json!({"contender": "x", "load": load, "loss_ratio": 0.5})))),
        ("burst.jsonl", lines("burst", &[json!({"contender": "x", "longest": [9], "mean_frames": 9.0})])),
        (
            "soak.jsonl",
            lines(
                "soak",
                &[
                    json!({"elapsed_s": 1.0, "nodes": [node(0)]}),
                    json!({"elapsed_s": 2.0, "nodes": [node(50)]}),
                    json!({"elapsed_s": 3.0, "nodes": [node(90)]}),
                    json!({"sent": 9, "lost": 0, "drift": []}),
                ],
            ),
        ),
        (
            "scale.jsonl",
            lines("scale", &[1, 2].map(|nodes| json!({"nodes": nodes, "policy": "p", "mean_ns": 1e6, "busy": [0.5]}))),
        ),
        ("reload.jsonl", lines("reload", &[json!({"way": "restart", "lost": 4, "blocked_s": 0.002})])),
    ];
    for (file, text) in files {
        fs::write(directory.join(file), text).unwrap();
    }
    let results = Results::read(&directory).unwrap();
    fs::remove_dir_all(directory).unwrap();
    results
}

#[test]
fn every_benchmark_has_its_section_and_nothing_comes_from_elsewhere() {
    let page = html(&results("alone"), None).unwrap();
    for title in ["Throughput", "Latency", "Interconnect", "Loss", "Bursts", "Soak", "Scale", "Reload"] {
        assert!(page.contains(&format!("<h2>{title}</h2>")), "{title}");
    }
    assert!(page.contains("50 %, 3 lost"), "loss stands beside the histogram");
    assert!(page.contains("a &amp; b") && page.contains("&lt;cpu&gt;"));
    assert!(!page.contains("http://") || page.matches("http://").count() == page.matches("http://www.w3.org").count());
    assert!(!page.contains("before"));
    assert_eq!(page.matches("<svg").count(), page.matches("</svg>").count());
}

#[test]
fn what_is_compared_with_is_marked() {
    let page = html(&results("now"), Some(&results("before"))).unwrap();
    assert!(page.contains("restart, before") && page.contains("compared with: &lt;cpu&gt;"));
}

#[test]
fn transports_have_their_bars_ratios_goals_and_failures() {
    let page = html(&results("transports"), Some(&results("transports-before"))).unwrap();
    for title in ["Median round trip, µs", "One way under overload, Mpps", "CPU time per frame, ns"] {
        assert!(page.contains(&format!("<title>{title}</title>")), "{title}");
    }
    // The median and the ends of p50, the ratio, and a dash where there is none.
    assert!(page.contains("<td>16.0 (8.0 to 32.0)</td>") && page.contains("<td>1.75 (0.88 to 3.50)</td>"));
    assert!(page.contains("<td>2.000 (1.000 to 4.000)</td><td>–</td>"));
    assert!(page.contains("CPU &lt; half 0.25: found 0.10, met") && page.contains("failed: round 1: xsk: no answer"));
    assert!(page.contains("this proves nothing") && page.contains("spinning, 74 bytes at node 2, before"));
}

#[test]
fn without_results_there_are_no_sections() {
    let page = html(&Results::default(), None).unwrap();
    assert!(!page.contains("<h2>"));
}
