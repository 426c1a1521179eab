//! The file format as a table: which sections there are, and which keys each may hold.

use super::settings;

/// A section of the file format.
pub(super) struct Schema {
    pub(super) name: &'static str,
    /// Written `[[name]]`, any number of times.
    pub(super) list: bool,
    /// What may stand in it,
    named: &'static [&'static str],
    /// and whether the settings of the policies may.
    settings: bool,
}

impl Schema {
    const fn one(name: &'static str, named: &'static [&'static str]) -> Self {
        Self { name, list: false, named, settings: false }
    }

    const fn list(name: &'static str, named: &'static [&'static str]) -> Self {
        Self { name, list: true, named, settings: false }
    }

    /// As it is written in the file.
    pub(super) fn header(&self) -> String {
        if self.list { format!("[[{}]]", self.name) } else { format!("[{}]", self.name) }
    }

    /// What may stand in it.
    pub(super) fn keys(&self) -> impl Iterator<Item = &'static str> + Clone + use<> {
        let settings = self.settings.then(|| settings::of_policy().map(settings::key));
        self.named.iter().copied().chain(settings.into_iter().flatten())
    }

    /// [`Schema::keys`] in words.
    pub(super) fn listed(&self) -> String {
        let named = self.named.join(", ");
        if self.settings { format!("{named} and what `dataplane policies --settings` lists") } else { named }
    }
}

pub(super) const NODE: Schema = Schema::one("node", &["name", "id"]);
pub(super) const PORT: Schema = Schema::list("port", &["interface", "mode", "zero_copy"]);
pub(super) const LINK: Schema = Schema::list("link", &["interface", "mode", "zero_copy", "segment", "encapsulation"]);
pub(super) const PEER: Schema = Schema::list("peer", &["name", "id", "link", "mac", "address"]);
pub(super) const MEMBERSHIP: Schema =
    Schema::one("membership", &["bind", "join", "key_file", "auth", "cluster", "max_nodes"]);
pub(super) const WORKERS: Schema = Schema::one(
    "workers",
    &["cpus", "frames", "frame_size", "spin", "patience", settings::DISCIPLINE, "pull", "backlog_limit"],
);
pub(super) const POLICY: Schema = Schema { settings: true, ..Schema::one("policy", &["name", "margin", "thesis"]) };
pub(super) const FORWARDING: Schema = Schema::one("forwarding", &["send", "receive", "wire", "bandwidth", "measure"]);
pub(super) const INTERCONNECT: Schema =
    Schema::one("interconnect", &["transport", "port", "retry", "key_file", "auth", "cluster"]);
pub(super) const EGRESS: Schema = Schema::one("egress", &["interface", "next_hop"]);
pub(super) const REPORTS: Schema =
    Schema::one("reports", &["mode", "interval", "idle_interval", "finish_share", "min_gap", "piggyback"]);
pub(super) const ACTIVE: Schema =
    Schema::one("active", &["udp_port", "verify_udp_checksum", "pktgen_port", "pktgen_operand"]);
pub(super) const FUNCTION: Schema =
    Schema::list("function", &["name", "type_id", "limit", "policy", "order", "returns", "lossless"]);

/// Every section.
pub(super) const SECTIONS: [&Schema; 13] = [
    &NODE,
    &PORT,
    &LINK,
    &PEER,
    &MEMBERSHIP,
    &WORKERS,
    &POLICY,
    &FORWARDING,
    &INTERCONNECT,
    &EGRESS,
    &REPORTS,
    &ACTIVE,
    &FUNCTION,
];

/// What to do with a key that stands in the wrong place.
pub(super) fn home_of(key: &str) -> String {
    let homes: Vec<_> = SECTIONS
        .iter()
        .filter(|schema| schema.keys().any(|known| known == key))
        .map(|schema| schema.header())
        .collect();
    if homes.is_empty() { "remove it".to_owned() } else { format!("move it to {}", homes.join(" or ")) }
}
