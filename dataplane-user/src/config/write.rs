//! The complete configuration as TOML.

use std::fmt::Display;

use dataplane_common::tuning::{Setting, Tuning};

use super::units::{show_bandwidth, show_duration};
use super::{Config, Interface, Membership, PeerEnd, settings};

/// A file that reads back as `config`.
pub(super) fn toml(config: &Config) -> String {
    let mut file = File(String::new());
    file.section("[node]");
    file.text("name", &config.node.name);
    file.set("id", config.node.id);
    for port in &config.ports {
        file.interface("[[port]]", port);
    }
    for link in &config.links {
        file.interface("[[link]]", &link.interface);
        file.text("segment", &link.segment);
        file.text("encapsulation", link.encapsulation.name());
    }
    for peer in &config.peers {
        file.section("[[peer]]");
        file.text("name", &peer.name);
        file.set("id", peer.id);
        file.text("link", &peer.link);
        match peer.end {
            PeerEnd::Mac(mac) => file.mac("mac", &mac),
            PeerEnd::Address(address) => file.text("address", &address.to_string()),
        }
    }
    if let Some(membership) = &config.membership {
        file.membership(membership);
    }
    file.section("[workers]");
    file.set("cpus", format_args!("{:?}", config.workers.cpus));
    file.set("frames", config.workers.frames);
    file.set("frame_size", config.workers.frame_size);
    file.duration("spin", config.workers.spin_ns);
    file.duration("patience", config.workers.patience_ns);
    let tuning = &config.policy.tuning;
    file.settings(tuning, |setting| setting.name == settings::DISCIPLINE);
    file.set("pull", config.workers.pull);
    file.duration("backlog_limit", config.workers.backlog_limit_ns);
    file.section("[policy]");
    file.text("name", config.policy.kind.name());
    file.duration("margin", config.policy.margin_ns);
    file.set("thesis", config.policy.thesis);
    file.settings(tuning, |setting| setting.name != settings::DISCIPLINE);
    file.section("[forwarding]");
    file.duration("send", config.forwarding.send_ns);
    file.duration("receive", config.forwarding.receive_ns);
    file.duration("wire", config.forwarding.wire_ns);
    file.text("bandwidth", &show_bandwidth(config.forwarding.bandwidth_bits));
    file.set("measure", config.forwarding.measure);
    file.section("[interconnect]");
    file.text("transport", config.interconnect.transport.name());
    file.set("port", config.interconnect.port);
    file.duration("retry", config.interconnect.retry_ns);
    if let Some(key_file) = &config.interconnect.key_file {
        file.text("key_file", &key_file.to_string_lossy());
    }
    file.text("auth", config.interconnect.auth.name());
    file.text("cluster", &config.interconnect.cluster);
    file.section("[egress]");
    file.text("interface", &config.egress.interface);
    if let Some(next_hop) = &config.egress.next_hop {
        file.mac("next_hop", next_hop);
    }
    file.section("[reports]");
    file.text("mode", config.reports.mode.name());
    file.duration("interval", config.reports.interval_ns);
    file.duration("idle_interval", config.reports.idle_interval_ns);
    file.set("finish_share", config.reports.finish_share);
    file.duration("min_gap", config.reports.min_gap_ns);
    file.set("piggyback", config.reports.piggyback);
    file.section("[active]");
    file.set("udp_port", config.active.udp_port);
    file.set("verify_udp_checksum", config.active.verify_udp_checksum);
    if let Some(port) = config.active.pktgen_port {
        file.set("pktgen_port", port);
    }
    file.set("pktgen_operand", config.active.pktgen_operand);
    functions(&mut file, config);
    file.0
}

fn functions(file: &mut File, config: &Config) {
    for function in &config.functions {
        file.section("[[function]]");
        file.text("name", function.name);
        file.set("type_id", format_args!("{:#06x}", function.type_id));
        file.duration("limit", function.limit_ns);
        file.text("policy", function.policy.name());
        file.text("order", function.order.name());
        file.text("returns", function.returns.name());
        file.set("lossless", function.lossless);
    }
}

/// A file as it grows.
struct File(String);

impl File {
    fn section(&mut self, header: &str) {
        if !self.0.is_empty() {
            self.0.push('\n');
        }
        self.0.push_str(header);
        self.0.push('\n');
    }

    fn set(&mut self, key: &str, value: impl Display) {
        self.0.push_str(&format!("{key} = {value}\n"));
    }

    fn text(&mut self, key: &str, value: &str) {
        // An interface may be called `a"b`; the TOML writer knows how to quote that.
        self.set(key, toml::Value::from(value));
    }

    fn mac(&mut self, key: &str, mac: &[u8; 6]) {
        self.text(key, &mac.map(|octet| format!("{octet:02x}")).join(":"));
    }

    fn duration(&mut self, key: &str, ns: u32) {
        self.text(key, &show_duration(ns.into()));
    }

    fn settings(&mut self, tuning: &Tuning, belongs: fn(&Setting) -> bool) {
        for setting in Tuning::ALL.iter().filter(|setting| belongs(setting)) {
            self.set(settings::key(setting), settings::show(setting, settings::get(tuning, setting)));
        }
    }

    fn membership(&mut self, membership: &Membership) {
        self.section("[membership]");
        self.text("bind", &membership.bind.to_string());
        let join: Vec<_> = membership.join.iter().map(|seed| toml::Value::from(seed.to_string())).collect();
        self.set("join", toml::Value::from(join));
        match &membership.key_file {
            Some(path) => self.text("key_file", &path.to_string_lossy()),
            None => self.text("auth", "off"),
        }
        self.text("cluster", &membership.cluster);
        self.set("max_nodes", membership.max_nodes);
    }

    fn interface(&mut self, header: &str, interface: &Interface) {
        self.section(header);
        self.text("interface", &interface.name);
        self.text("mode", interface.mode.name());
        self.text("zero_copy", interface.zero_copy.name());
    }
}
