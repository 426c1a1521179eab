//! How packets are placed: `[policy]`, its settings, and what `[[function]]` says about it.

use dataplane_common::maps::MAX_FUNCTIONS;
use dataplane_common::policy::{Homes, Needs, PolicyKind};
use dataplane_common::tuning::{Setting, Tuning};
use toml::de::DeValue;

use super::super::error::Complaint;
use super::super::schema::FUNCTION;
use super::super::value::{self, Read, UP_TO_A_SECOND};
use super::super::{FunctionConfig, Order, Policy, Returns, Transport, settings};
use super::Reader;
use super::walk::{Claims, Field, Section};

/// Settings of which the first may not be above the second, and why.
const ORDERED: [(&str, &str, &str); 3] = [
    ("recovery_milli", "threshold_milli", "a node would be over and recovered at the same load"),
    ("busy_milli", "full_milli", "a load would be high before it is middle"),
    ("calm_milli", "flood_milli", "a function would flood and be calm at the same rate"),
];

impl Reader<'_> {
    pub(super) fn policy(&mut self, section: &Section<'_>) -> Policy {
        let default = Policy::default();
        let kind = self.policy_name(section, "name");
        let margin = value::duration(UP_TO_A_SECOND, "with a larger margin no packet would ever be sent");
        let thesis = self.field(section, "thesis", value::flag).or(default.thesis);
        Policy {
            kind: kind.or(default.kind),
            margin_ns: self.field(section, "margin", margin).or(default.margin_ns),
            thesis,
            tuning: self.settings(section, Policy::tuning_of(thesis)),
        }
    }

    /// Reads the settings that `section` has; `tuning` has the others.
    fn settings(&mut self, section: &Section<'_>, mut tuning: Tuning) -> Tuning {
        let mut bad = Vec::new();
        for setting in settings::of_policy() {
            let field = self.field(section, settings::key(setting), settings::read(setting));
            if field.is_bad() {
                bad.push(setting.name);
            }
            let default = settings::get(&tuning, setting);
            settings::set(&mut tuning, setting, field.or(default));
        }
        for (least, most, why) in ORDERED {
            if !bad.contains(&least) && !bad.contains(&most) {
                self.in_order(section, &tuning, [least, most], why);
            }
        }
        tuning
    }

    /// Complains when the first of two settings is above the second.
    fn in_order(&mut self, section: &Section<'_>, tuning: &Tuning, names: [&str; 2], why: &str) {
        let find = |name| Tuning::ALL.iter().find(|setting: &&Setting| setting.name == name);
        let [Some(least), Some(most)] = names.map(find) else {
            return;
        };
        if settings::get(tuning, least) <= settings::get(tuning, most) {
            return;
        }
        let [least, most] = [least, most].map(settings::key);
        // Defaults are in order, so the file sets one of the two.
        let Some(value) = section.table.get(least).or_else(|| section.table.get(most)) else {
            return;
        };
        let complaint = Complaint::new(
            format!("{least} is above {most}"),
            why,
            format!("write {least} and {most} so that {least} is at most {most}"),
        );
        self.problems.add_of_whole(&value.span(), complaint);
    }

    /// Reads the workers' discipline.
    pub(super) fn discipline(&mut self, section: &Section<'_>) -> u32 {
        let setting = Tuning::ALL.iter().find(|setting| setting.name == settings::DISCIPLINE);
        let field = setting.map(|setting| self.field(section, settings::DISCIPLINE, settings::read(setting)));
        field.and_then(Field::value).unwrap_or(Tuning::DEFAULT.discipline)
    }

    /// Reads the name of a policy that this node can run.
    fn policy_name(&mut self, section: &Section<'_>, key: &'static str) -> Field<PolicyKind> {
        let kind = self.field(section, key, policy);
        if let Some((kind, span)) = kind.good()
            && let Some(Complaint { what, why, todo }) = Declared::by(*kind).obstacle(self.pull, self.transport)
        {
            let what = format!("{key} = {} {what}", self.problems.quote(&span));
            self.problems.add_of_whole(&span, Complaint { what, why, todo });
        }
        kind
    }

    /// The functions; those that name no policy are placed by `policy`.
    pub(super) fn functions(&mut self, policy: PolicyKind) -> Option<Vec<FunctionConfig>> {
        let sections = self.tables(&FUNCTION);
        if sections.is_empty() {
            return Some(self.known.iter().map(|known| FunctionConfig::new(*known, policy)).collect());
        }
        self.at_most(MAX_FUNCTIONS, "functions", sections.iter());
        let mut claimed = Claimed {
            names: Claims::new("a function is measured and counted once", "remove one of the two"),
            ids: Claims::new("a packet names its function by the type id", "give each function an id of its own"),
        };
        let functions: Vec<_> = sections.iter().map(|section| self.function(section, policy, &mut claimed)).collect();
        functions.into_iter().collect()
    }

    fn function(&mut self, section: &Section<'_>, policy: PolicyKind, claimed: &mut Claimed) -> Option<FunctionConfig> {
        let words = self.known.iter().map(|known| (known.name, *known)).collect();
        let known = self.required(section, "name", "name = \"crc32\"", value::word(words, "function"));
        let type_id = self.field(section, "type_id", value::type_id);
        let limit = value::duration(1_000..=1_000_000_000, "a limit keeps one packet from blocking its worker");
        let limit = self.field(section, "limit", limit);
        let policy = self.policy_name(section, "policy").or(policy);
        let order = self.field(section, "order", value::word(Order::NAMES.to_vec(), "order"));
        let returns = self.field(section, "returns", value::word(Returns::NAMES.to_vec(), "way"));
        let lossless = self.field(section, "lossless", value::flag);
        self.directly(&order, &returns, &lossless);
        let (function, span) = known.good()?;
        let label = format!("the function {}", function.name);
        claimed.names.claim(function.name, &label, section, &span, &mut self.problems);
        if type_id.is_bad() {
            return None;
        }
        let (id, span) = type_id.good().map_or((function.type_id, span), |(id, span)| (*id, span));
        claimed.ids.claim(id, &format!("the type id {id:#06x}"), section, &span, &mut self.problems);
        let default = FunctionConfig::new(*function, policy);
        Some(FunctionConfig {
            type_id: id,
            limit_ns: limit.or(default.limit_ns),
            order: order.or(default.order),
            returns: returns.or(default.returns),
            lossless: lossless.or(default.lossless),
            ..default
        })
    }
}

impl Reader<'_> {
    /// Complains when results shall leave directly that must come home.
    fn directly(&mut self, order: &Field<Order>, returns: &Field<Returns>, lossless: &Field<bool>) {
        let Some((Returns::Direct, span)) = returns.good() else {
            return;
        };
        let is_ordered = match order {
            Field::Bad => false,
            _ => order.good().is_none_or(|(order, _)| *order != Order::None),
        };
        if is_ordered {
            let complaint = Complaint::new(
                "returns = \"direct\" contradicts the order of results",
                "order is kept where the packets arrived, and results that leave elsewhere do not pass there",
                "write order = \"none\", or returns = \"ingress\"",
            );
            self.problems.add_of_whole(&span, complaint);
        }
        if lossless.good().is_some_and(|(lossless, _)| *lossless) {
            let complaint = Complaint::new(
                "returns = \"direct\" contradicts lossless = true",
                "a packet that is computed twice would be answered twice: only its node of arrival can tell",
                "write returns = \"ingress\", or lossless = false",
            );
            self.problems.add_of_whole(&span, complaint);
        }
    }
}

/// What each function has for itself.
struct Claimed {
    names: Claims<&'static str>,
    ids: Claims<u16>,
}

/// The name of a policy.
fn policy(value: &DeValue<'_>) -> Read<PolicyKind> {
    value::word(PolicyKind::ALL.iter().map(|kind| (kind.name(), *kind)).collect(), "policy")(value)
}

/// What a policy says about itself.
struct Declared {
    name: &'static str,
    help: &'static str,
    homes: Homes,
    needs: Needs,
}

impl Declared {
    fn by(kind: PolicyKind) -> Self {
        Self { name: kind.name(), help: kind.help(), homes: kind.homes(), needs: kind.needs() }
    }

    /// Why no node can run it, or not one with this transport or whose idle workers `pull` or do not; what cannot be told because
    /// of another mistake (`None`) is no obstacle. The complaint's first part ends a sentence that begins with the key.
    fn obstacle(&self, pull: Option<bool>, transport: Option<Transport>) -> Option<Complaint> {
        let Self { name, help, homes, needs } = self;
        let help = help.trim_end_matches('.');
        let another = "write another policy; `dataplane policies` lists them and where they run";
        if !homes.has_worker() && !homes.has_xdp() {
            let why = format!("{name} ({help}) runs in the simulator only");
            return Some(Complaint::new("cannot place packets on a node", why, another));
        }
        if !homes.has_xdp() && transport == Some(Transport::Xdp) {
            let why = format!("{name} ({help}) runs in workers and in the simulator");
            let todo = "write transport = \"xsk\" in [interconnect], with which workers decide, or another policy";
            return Some(Complaint::new("cannot place packets in XDP, where they arrive", why, todo));
        }
        if needs.has(Needs::PROBES) {
            let why = format!("{name} ({help}) lives on answers of single nodes, and nodes send no probes");
            return Some(Complaint::new("needs probes", why, another));
        }
        if needs.has(Needs::PULL) && pull == Some(false) {
            let why = format!("{name} ({help}) lives on idle workers that ask for work");
            return Some(Complaint::new("needs workers that pull", why, "write pull = true in [workers]"));
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAIN: Declared =
        Declared { name: "oracle", help: "By true present loads.", homes: Homes::ANY, needs: Needs::NOTHING };

    fn refused(declared: &Declared, pull: Option<bool>) -> Option<[String; 3]> {
        refused_over(declared, pull, Some(Transport::Xdp))
    }

    fn refused_over(declared: &Declared, pull: Option<bool>, transport: Option<Transport>) -> Option<[String; 3]> {
        declared.obstacle(pull, transport).map(|Complaint { what, why, todo }| [what, why, todo])
    }

    #[test]
    fn settings_that_must_be_in_order_are_by_default() {
        for (least, most, _) in ORDERED {
            let [least, most] =
                [least, most].map(|name| Tuning::ALL.iter().find(|setting| setting.name == name).unwrap().default);
            assert!(least <= most);
        }
    }

    #[test]
    fn a_policy_that_cannot_run_in_xdp_is_refused_with_where_it_can() {
        let oracle = Declared { homes: Homes::SIMULATOR, ..PLAIN };
        for transport in [Transport::Xdp, Transport::Xsk, Transport::Udp] {
            let [what, why, todo] = refused_over(&oracle, Some(true), Some(transport)).unwrap();
            assert_eq!(what, "cannot place packets on a node");
            assert_eq!(why, "oracle (By true present loads) runs in the simulator only");
            assert!(todo.contains("dataplane policies"));
        }
        let worker = Declared { homes: Homes::WORKER, ..PLAIN };
        let [what, why, todo] = refused(&worker, Some(true)).unwrap();
        assert_eq!(what, "cannot place packets in XDP, where they arrive");
        assert!(why.ends_with("runs in workers and in the simulator") && todo.contains("xsk"), "{why}; {todo}");
        for transport in [Some(Transport::Xsk), Some(Transport::Udp), None] {
            assert_eq!(refused_over(&worker, Some(true), transport), None, "{transport:?}");
        }
        assert_eq!(refused(&PLAIN, Some(false)), None);
    }

    #[test]
    fn a_policy_is_refused_without_what_it_lives_on() {
        let probing = Declared { needs: Needs::REPORTS.and(Needs::PROBES), ..PLAIN };
        assert!(refused(&probing, Some(true)).unwrap()[1].contains("nodes send no probes"));
        let pulling = Declared { needs: Needs::REPORTS.and(Needs::PULL), ..PLAIN };
        assert_eq!(refused(&pulling, Some(false)).unwrap()[2], "write pull = true in [workers]");
        assert_eq!(refused(&pulling, Some(true)), None);
        assert_eq!(refused(&pulling, None), None, "one mistake is one message");
    }
}
