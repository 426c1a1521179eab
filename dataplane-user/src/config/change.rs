//! What differs between two configurations of a node, and whether a running node can take it.

use super::{Active, Config, FunctionConfig, Interconnect, Policy, Workers};

/// Sections and keys that differ between two configurations, as the file names them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Change {
    /// What a running node takes.
    pub live: Vec<&'static str>,
    /// What needs a restart: sockets, threads, tables and other nodes depend on it.
    pub fixed: Vec<&'static str>,
}

impl Change {
    /// What `new` has that `old` has not.
    pub fn between(old: &Config, new: &Config) -> Self {
        // Whole structures are taken apart, so that a new key cannot be forgotten here.
        let Config {
            node,
            ports,
            links,
            peers,
            membership,
            workers,
            policy,
            forwarding,
            interconnect,
            egress,
            reports,
            active,
            functions,
        } = new;
        let mut change = Self::default();
        change.fixed("[node]", old.node != *node);
        change.fixed("[[port]]", old.ports != *ports);
        change.fixed("[[link]]", old.links != *links);
        change.fixed("[[peer]]", old.peers != *peers);
        change.fixed("[membership]", old.membership != *membership);
        change.workers(&old.workers, workers);
        change.policy(&old.policy, policy);
        change.live("[forwarding]", old.forwarding != *forwarding);
        change.interconnect(&old.interconnect, interconnect);
        change.live("[egress]", old.egress != *egress);
        change.live("[reports]", old.reports != *reports);
        change.active(&old.active, active);
        change.functions(&old.functions, functions);
        change
    }

    fn live(&mut self, key: &'static str, differs: bool) {
        if differs {
            self.live.push(key);
        }
    }

    fn fixed(&mut self, key: &'static str, differs: bool) {
        if differs {
            self.fixed.push(key);
        }
    }

    fn workers(&mut self, old: &Workers, new: &Workers) {
        let Workers { cpus, frames, frame_size, spin_ns, patience_ns, pull, backlog_limit_ns } = new;
        self.fixed("[workers] cpus", old.cpus != *cpus);
        self.fixed("[workers] frames", old.frames != *frames);
        self.fixed("[workers] frame_size", old.frame_size != *frame_size);
        self.live("[workers] spin", old.spin_ns != *spin_ns);
        self.live("[workers] patience", old.patience_ns != *patience_ns);
        self.live("[workers] pull", old.pull != *pull);
        self.live("[workers] backlog_limit", old.backlog_limit_ns != *backlog_limit_ns);
    }

    fn policy(&mut self, old: &Policy, new: &Policy) {
        // The discipline is written among the workers' keys.
        let (mut was, mut is) = (old.clone(), new.clone());
        (was.tuning.discipline, is.tuning.discipline) = (0, 0);
        self.live("[policy]", was != is);
        self.live("[workers] discipline", old.tuning.discipline != new.tuning.discipline);
    }

    fn interconnect(&mut self, old: &Interconnect, new: &Interconnect) {
        let Interconnect { transport, port, retry_ns, key_file, auth, cluster } = new;
        self.fixed("[interconnect] transport", old.transport != *transport);
        self.fixed("[interconnect] port", old.port != *port);
        self.fixed("[interconnect] key_file", old.key_file != *key_file);
        self.fixed("[interconnect] auth", old.auth != *auth);
        self.fixed("[interconnect] cluster", old.cluster != *cluster);
        self.live("[interconnect] retry", old.retry_ns != *retry_ns);
    }

    fn active(&mut self, old: &Active, new: &Active) {
        let Active { udp_port, verify_udp_checksum, pktgen_port, pktgen_operand } = new;
        self.fixed("[active] udp_port", old.udp_port != *udp_port);
        self.fixed("[active] pktgen_port", old.pktgen_port != *pktgen_port);
        self.fixed("[active] pktgen_operand", old.pktgen_operand != *pktgen_operand);
        self.live("[active] verify_udp_checksum", old.verify_udp_checksum != *verify_udp_checksum);
    }

    fn functions(&mut self, old: &[FunctionConfig], new: &[FunctionConfig]) {
        let identity = |function: &FunctionConfig| (function.name, function.type_id);
        if old.iter().map(identity).eq(new.iter().map(identity)) {
            self.live("[[function]]", old != new);
        } else {
            self.fixed.push("[[function]] name and type_id");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OLD: &str = r#"
        [node]
        name = "n1"
        id = 1
        [[port]]
        interface = "eth1"
        [[function]]
        name = "crc32"
    "#;

    fn change(from: &str, to: &str) -> Change {
        let parse = |text: &str| Config::parse(text, &crate::node::known_functions()).unwrap();
        assert_ne!(OLD.replace(from, to), OLD, "the test replaces something");
        Change::between(&parse(OLD), &parse(&OLD.replace(from, to)))
    }

    #[test]
    fn nothing_differs_from_itself() {
        let config = Config::parse(OLD, &crate::node::known_functions()).unwrap();
        assert_eq!(Change::between(&config, &config), Change::default());
    }

    #[test]
    fn what_a_running_node_takes_is_told_from_what_needs_a_restart() {
        let live = [
            ("[workers]\nspin = \"1ms\"", "[workers] spin"),
            ("[workers]\npatience = \"1ms\"", "[workers] patience"),
            ("[workers]\npull = true", "[workers] pull"),
            ("[workers]\nbacklog_limit = \"1ms\"", "[workers] backlog_limit"),
            ("[workers]\ndiscipline = \"shortest\"", "[workers] discipline"),
            ("[policy]\nname = \"sooner\"", "[policy]"),
            ("[policy]\nprice = 3.0", "[policy]"),
            ("[forwarding]\nsend = \"1us\"", "[forwarding]"),
            ("[interconnect]\nretry = \"1ms\"", "[interconnect] retry"),
            ("[reports]\ninterval = \"200us\"", "[reports]"),
            ("[active]\nverify_udp_checksum = false", "[active] verify_udp_checksum"),
        ];
        for (lines, key) in live {
            let change = change("[[function]]", &format!("{lines}\n[[function]]"));
            assert!(change.live.contains(&key) && change.fixed.is_empty(), "{lines}: {change:?}");
        }
        let fixed = [
            ("[workers]\ncpus = [1]", "[workers] cpus"),
            ("[workers]\nframes = 2048", "[workers] frames"),
            ("[workers]\nframe_size = 4096", "[workers] frame_size"),
            ("[interconnect]\nport = 9", "[interconnect] port"),
            ("[interconnect]\ncluster = \"b\"", "[interconnect] cluster"),
            ("[interconnect]\ntransport = \"xsk\"", "[interconnect] transport"),
            ("[active]\nudp_port = 9", "[active] udp_port"),
            ("[active]\npktgen_port = 9", "[active] pktgen_port"),
            ("[active]\npktgen_operand = 9", "[active] pktgen_operand"),
            ("[[port]]\ninterface = \"eth2\"", "[[port]]"),
            ("[[function]]\nname = \"sha256\"", "[[function]] name and type_id"),
        ];
        for (lines, key) in fixed {
            let change = change("[[function]]", &format!("{lines}\n[[function]]"));
            assert_eq!(change.fixed, [key], "{lines}");
        }
        assert_eq!(change("id = 1", "id = 2").fixed, ["[node]"]);
    }

    #[test]
    fn settings_of_a_function_are_live_and_its_name_is_not() {
        assert_eq!(change("\"crc32\"", "\"crc32\"\npolicy = \"local\"").live, ["[[function]]"]);
        assert_eq!(change("\"crc32\"", "\"crc32\"\ntype_id = 77").fixed, ["[[function]] name and type_id"]);
    }
}
