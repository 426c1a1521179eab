use std::fs;

use serde_json::json;

use super::*;
use crate::traffic::Distribution;
use crate::{latency, throughput, trials};

fn environment() -> Value {
    json!({"cpu": "<cpu>", "cores": 2, "kernel": "6.18", "version": "1"})
}

fn lines(benchmark: &str, values: &[Value]) -> String {
    let head = json!({"schema": trials::SCHEMA, "benchmark": benchmark, "environment": environment()});
    std::iter::once(&head).chain(values).map(|value| format!("{value}\n")).collect()
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
    for title in ["Throughput", "Latency", "Loss", "Bursts", "Soak", "Scale", "Reload"] {
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
fn without_results_there_are_no_sections() {
    let page = html(&Results::default(), None).unwrap();
    assert!(!page.contains("<h2>"));
}
