//! The file format as a table: which sections there are, and which keys each may hold.

/// A section of the file format.
pub(super) struct Schema {
    pub(super) name: &'static str,
    /// Written `[[name]]`, any number of times.
    pub(super) list: bool,
    /// What may stand in it.
    pub(super) keys: &'static [&'static str],
}

impl Schema {
    const fn one(name: &'static str, keys: &'static [&'static str]) -> Self {
        Self { name, list: false, keys }
    }

    const fn list(name: &'static str, keys: &'static [&'static str]) -> Self {
        Self { name, list: true, keys }
    }

    /// As it is written in the file.
    pub(super) fn header(&self) -> String {
        if self.list { format!("[[{}]]", self.name) } else { format!("[{}]", self.name) }
    }
}

pub(super) const NODE: Schema = Schema::one("node", &["name", "id"]);
pub(super) const PORT: Schema = Schema::list("port", &["interface", "mode", "zero_copy"]);
pub(super) const LINK: Schema = Schema::list("link", PORT.keys);
pub(super) const PEER: Schema = Schema::list("peer", &["name", "id", "link", "mac"]);
pub(super) const WORKERS: Schema = Schema::one("workers", &["cpus", "frames", "frame_size", "spin"]);
pub(super) const POLICY: Schema = Schema::one("policy", &["name", "margin", "guard"]);
pub(super) const FORWARDING: Schema = Schema::one("forwarding", &["send", "receive", "wire", "bandwidth"]);
pub(super) const REPORTS: Schema = Schema::one("reports", &["interval", "idle_interval"]);
pub(super) const ACTIVE: Schema = Schema::one("active", &["udp_port", "verify_udp_checksum"]);
pub(super) const FUNCTION: Schema = Schema::list("function", &["name", "type_id", "limit"]);

/// Every section.
pub(super) const SECTIONS: [&Schema; 10] =
    [&NODE, &PORT, &LINK, &PEER, &WORKERS, &POLICY, &FORWARDING, &REPORTS, &ACTIVE, &FUNCTION];

/// What to do with a key that stands in the wrong place.
pub(super) fn home_of(key: &str) -> String {
    let homes: Vec<_> =
        SECTIONS.iter().filter(|schema| schema.keys.contains(&key)).map(|schema| schema.header()).collect();
    if homes.is_empty() { "remove it".to_owned() } else { format!("move it to {}", homes.join(" or ")) }
}
