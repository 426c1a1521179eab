//! A scenario in words: whole as JSON, and as the options of `dataplane-sim` that describe it again.

use std::fmt::{self, Display, Formatter};

use serde_json::{Value, json};

use super::ingress::Ingress;
use super::scenario::{Egress, Estimates, Failure, Pull, ReportMode, Reports, Scenario};

/// As on the command line.
impl Display for Ingress {
    fn fmt(&self, out: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Uniform => out.write_str("uniform"),
            Self::Skewed(share) => write!(out, "skew:{share}"),
            Self::Weights(weights) => out.write_str(&listed(weights)),
            Self::Zipf => out.write_str("zipf"),
            Self::Bursts => out.write_str("bursts"),
        }
    }
}

/// As on the command line.
impl Display for Estimates {
    fn fmt(&self, out: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exact => out.write_str("exact"),
            Self::LogSigma(sigma) => write!(out, "{sigma}"),
            Self::KindMean => out.write_str("kind"),
        }
    }
}

/// As on the command line.
impl Display for ReportMode {
    fn fmt(&self, out: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Periodic => out.write_str("periodic"),
            Self::OnFinish => out.write_str("on-finish"),
            Self::KFinish(milli) => write!(out, "k-finish:{}", f64::from(*milli) / 10.0),
            Self::Threshold => out.write_str("threshold"),
        }
    }
}

/// As on the command line.
impl Display for Failure {
    fn fmt(&self, out: &mut Formatter<'_>) -> fmt::Result {
        write!(out, "{}@{}", self.node, self.at_ns as f64 / 1e6)?;
        self.until_ns.map_or(Ok(()), |until_ns| write!(out, "-{}", until_ns as f64 / 1e6))
    }
}

fn listed<T: Display>(values: &[T]) -> String {
    values.iter().map(T::to_string).collect::<Vec<_>>().join(",")
}

/// Microseconds of so many nanoseconds.
fn us(ns: impl Into<f64>) -> f64 {
    ns.into() / 1000.0
}

const fn egress_name(egress: Egress) -> &'static str {
    match egress {
        Egress::Direct => "direct",
        Egress::Ingress => "ingress",
        Egress::Ordered => "ordered",
    }
}

const fn pull_name(pull: Pull) -> &'static str {
    match pull {
        Pull::ByPolicy => "by-policy",
        Pull::Never => "never",
        Pull::Always => "always",
    }
}

impl Scenario {
    /// Every field.
    pub fn json(&self) -> Value {
        let Self { reports, forwarding, .. } = self;
        json!({
            "nodes": self.nodes,
            "workers": self.workers,
            "speeds": self.speeds(),
            "load": self.load,
            "workload": self.workload.name(),
            "mean_service_ns": self.mean_service_ns,
            "ingress": self.ingress.to_string(),
            "playback": self.playback.as_ref().map(|playback| json!({
                "packets": playback.recording.packets.len(),
                "flows": playback.recording.flows,
                "span_ns": playback.recording.span_ns(),
                "stretch": playback.stretch,
            })),
            "flows_per_node": self.flows,
            "flow_skew": self.flow_skew,
            "keys": self.keys,
            "classes": self.classes,
            "estimates": self.estimates.to_string(),
            "memory_packets": self.memory_packets,
            "keeps_flow_order": self.keeps_flow_order,
            "guard": self.guard,
            "margin_ns": self.margin_ns,
            "forwarding": {
                "send_ns": forwarding.send_ns,
                "receive_ns": forwarding.receive_ns,
                "wire_ns": forwarding.wire_ns,
                "wire_ns_per_byte": f64::from(forwarding.wire_ns_per_byte_q16) / 65536.0,
            },
            "loss": self.loss,
            "message_ns": self.message_ns,
            "egress": egress_name(self.egress),
            "sleep": { "after_ns": self.sleep.after_ns, "wake_ns": self.sleep.wake_ns },
            "reports": {
                "mode": reports.mode.to_string(),
                "interval_ns": reports.interval_ns,
                "gap_ns": reports.gap_ns,
                "delay_ns": reports.delay_ns,
                "loss": reports.loss,
                "receive_ns": reports.receive_ns,
                "piggyback": reports.piggyback,
            },
            "pull": pull_name(self.pull),
            "control_ns": self.control_ns,
            "failures": self.failures.iter().map(Failure::to_string).collect::<Vec<_>>(),
            "packets": self.packets,
            "warm_up": self.warm_up,
        })
    }

    /// Speeds of the nodes before they are repeated, 1 = the reference node; empty = all 1.
    pub fn speeds(&self) -> Vec<f64> {
        self.speeds_milli.iter().map(|milli| f64::from(*milli) / 1000.0).collect()
    }

    /// The options of `dataplane-sim run` and `compare` that describe the scenario; those with their default are left out.
    ///
    /// What has no option (message costs, the control interval, the margin, sleep) has its default there, and a recording does not
    /// know the file that it was read from.
    pub fn options(&self) -> Vec<String> {
        let default = Self::default();
        let mut options = Vec::new();
        let mut add = |name: &str, value: String, usual: String| {
            if value != usual {
                options.extend([format!("--{name}"), value]);
            }
        };
        let mut both = |name: &str, text: &dyn Fn(&Self) -> String| add(name, text(self), text(&default));
        both("nodes", &|of| of.nodes.to_string());
        both("workers", &|of| of.workers.to_string());
        both("speeds", &|of| listed(&of.speeds()));
        both("load", &|of| of.load.to_string());
        both("workload", &|of| of.workload.name().to_owned());
        both("service-us", &|of| us(of.mean_service_ns).to_string());
        both("ingress", &|of| of.ingress.to_string());
        both("flows", &|of| of.flows.to_string());
        both("flow-skew", &|of| of.flow_skew.to_string());
        both("keys", &|of| of.keys.to_string());
        both("classes", &|of| listed(&of.classes));
        both("estimates", &|of| of.estimates.to_string());
        both("send-us", &|of| us(of.forwarding.send_ns).to_string());
        both("receive-us", &|of| us(of.forwarding.receive_ns).to_string());
        both("wire-us", &|of| us(of.forwarding.wire_ns).to_string());
        both("loss", &|of| of.loss.to_string());
        both("egress", &|of| egress_name(of.egress).to_owned());
        both("report-us", &|of| us(of.reports.interval_ns as f64).to_string());
        both("report-mode", &|of| of.reports.mode.to_string());
        both("report-gap-us", &|of| us(of.reports.gap_ns as f64).to_string());
        both("report-loss", &|of| of.reports.loss.to_string());
        both("report-receive-us", &|of| us(of.reports.receive_ns).to_string());
        both("pull", &|of| pull_name(of.pull).to_owned());
        both("memory", &|of| of.memory_packets.to_string());
        both("packets", &|of| of.packets.to_string());
        self.add_rest(&mut options);
        options
    }

    fn add_rest(&self, options: &mut Vec<String>) {
        let per_byte_ns = f64::from(self.forwarding.wire_ns_per_byte_q16) / 65536.0;
        if per_byte_ns > 0.0 {
            options.extend(["--gbps".to_owned(), (8.0 / per_byte_ns).to_string()]);
        }
        let Reports { piggyback, .. } = self.reports;
        for (is_set, flag) in [(!piggyback, "--no-piggyback"), (!self.guard, "--no-guard")] {
            options.extend(is_set.then(|| flag.to_owned()));
        }
        options.extend(self.failures.iter().flat_map(|failure| ["--fail".to_owned(), failure.to_string()]));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_usual_scenario_needs_no_options() {
        assert!(Scenario::default().options().is_empty());
        let json = Scenario::default().json();
        assert_eq!((&json["nodes"], &json["reports"]["interval_ns"]), (&json!(8), &json!(100_000)));
    }

    #[test]
    fn options_say_what_differs() {
        let failures = vec![Failure { node: 2, at_ns: 5_000_000, until_ns: Some(7_500_000) }];
        let ingress = Ingress::Skewed(0.5);
        let scenario = Scenario { nodes: 5, speeds_milli: vec![1000, 950], ingress, failures, ..Scenario::default() };
        let options = scenario.options().join(" ");
        assert_eq!(options, "--nodes 5 --speeds 1,0.95 --ingress skew:0.5 --fail 2@5-7.5");
    }
}
