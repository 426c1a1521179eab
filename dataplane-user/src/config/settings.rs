//! The settings of the policies ([`Tuning`]) as keys of the file. All of it comes from their table: a new setting is a new
//! key.
//!
//! A key is the setting's name without its unit, because the value carries that: `price_milli` = 2000 is written
//! `price = 2.0`, `plan_ns` = 10,000,000 is `plan = "10ms"`.

use std::ops::RangeInclusive;

use dataplane_common::load::Erl;
use dataplane_common::tuning::{CLASS, FIFO, SHORTEST, Setting, Tuning, Unit};
use serde::Serialize;
use toml::de::DeValue;

use super::error::Complaint;
use super::units::{show_duration, show_milli};
use super::value::{self, Read};

/// The setting that belongs to the workers: they serve their queue by it, and policies only reckon with it.
pub(super) const DISCIPLINE: &str = "discipline";

/// A setting as `dataplane policies --settings` lists it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct KnownSetting {
    /// Section of the file.
    pub section: &'static str,
    /// Key.
    pub key: &'static str,
    /// What applies when the file does not set it, as it would be written there.
    pub default: String,
    /// What may be written.
    pub accepted: String,
    /// One line for people.
    pub help: &'static str,
}

/// Every setting of the policies, in the order of their table.
pub fn settings() -> impl Iterator<Item = KnownSetting> {
    Tuning::ALL.iter().map(|setting| KnownSetting {
        section: if setting.name == DISCIPLINE { "workers" } else { "policy" },
        key: key(setting),
        default: show(setting, setting.default),
        accepted: accepted(setting),
        help: setting.help,
    })
}

/// The settings that are keys of `[policy]`.
pub(super) fn of_policy() -> impl Iterator<Item = &'static Setting> + Clone {
    Tuning::ALL.iter().filter(|setting| setting.name != DISCIPLINE)
}

/// The key of a setting.
pub(super) fn key(setting: &Setting) -> &'static str {
    without_unit(setting.name)
}

/// A name without the unit at its end.
pub(super) fn without_unit(name: &str) -> &str {
    name.strip_suffix("_milli").or_else(|| name.strip_suffix("_ns")).unwrap_or(name)
}

/// What `tuning` has for `setting`.
pub(super) fn get(tuning: &Tuning, setting: &Setting) -> u32 {
    let mut copy = *tuning;
    copy.get_mut(setting.name).copied().unwrap_or(setting.default)
}

/// Sets `setting` of `tuning`.
pub(super) fn set(tuning: &mut Tuning, setting: &Setting, value: u32) {
    if let Some(field) = tuning.get_mut(setting.name) {
        *field = value;
    }
}

/// Reads a value of `setting`.
pub(super) fn read(setting: &'static Setting) -> impl Fn(&DeValue<'_>) -> Read<u32> {
    move |value| {
        let range = || -> RangeInclusive<u32> { setting.least..=setting.most };
        let why = setting.help.trim_end_matches('.');
        match setting.unit {
            Unit::Count => value::number(range(), why)(value),
            Unit::Milli => value::milli(range(), why)(value),
            Unit::Ns => value::duration(range(), why)(value),
            Unit::Choice => {
                value::word(words(setting), "choice")(value).map_err(|Complaint { what, why: listed, todo }| {
                    Complaint { what, why: format!("{why}; {listed}"), todo }
                })
            }
        }
    }
}

/// `value` of `setting` as it is written in a file.
pub(super) fn show(setting: &Setting, value: u32) -> String {
    match setting.unit {
        Unit::Count => value.to_string(),
        Unit::Milli => show_milli(value),
        Unit::Ns => format!("{:?}", show_duration(value.into())),
        Unit::Choice => words(setting)
            .iter()
            .find(|(_, number)| *number == value)
            .map_or_else(|| value.to_string(), |(word, _)| format!("{word:?}")),
    }
}

/// What may be written for `setting`.
fn accepted(setting: &Setting) -> String {
    let range = |show: fn(u32) -> String| format!("{} to {}", show(setting.least), show(setting.most));
    match setting.unit {
        Unit::Count => range(|count| count.to_string()),
        Unit::Milli => range(show_milli),
        Unit::Ns => range(|ns| show_duration(ns.into())),
        Unit::Choice => words(setting).iter().map(|(word, _)| *word).collect::<Vec<_>>().join(", "),
    }
}

/// The words of a choice with the numbers they stand for.
fn words(setting: &Setting) -> Vec<(&'static str, u32)> {
    match setting.name {
        "erl" => Erl::NAMES.iter().map(|(word, mode)| (*word, *mode as u32)).collect(),
        DISCIPLINE => vec![("fifo", FIFO), ("shortest", SHORTEST), ("class", CLASS)],
        "over" => vec![("half", 0), ("none", 1)],
        "adjust_on" => vec![("over", 0), ("both", 1)],
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::super::schema::{POLICY, SECTIONS, WORKERS};
    use super::*;

    #[test]
    fn no_two_keys_of_a_section_are_the_same() {
        for schema in SECTIONS {
            let keys: Vec<_> = schema.keys().collect();
            assert_eq!(keys.iter().collect::<BTreeSet<_>>().len(), keys.len(), "{}: {keys:?}", schema.name);
        }
        let keys: BTreeSet<_> = Tuning::ALL.iter().map(key).collect();
        assert_eq!(keys.len(), Tuning::ALL.len(), "a name without its unit is another's");
    }

    #[test]
    fn names_end_in_their_unit_and_every_setting_has_a_home() {
        for setting in Tuning::ALL {
            let end = match setting.unit {
                Unit::Milli => "_milli",
                Unit::Ns => "_ns",
                Unit::Count | Unit::Choice => "",
            };
            assert_eq!(format!("{}{end}", key(setting)), setting.name);
            let home = if setting.name == DISCIPLINE { WORKERS } else { POLICY };
            assert!(home.keys().any(|known| known == key(setting)), "{}", setting.name);
        }
    }

    #[test]
    fn every_number_of_a_choice_has_a_word() {
        for setting in Tuning::ALL.iter().filter(|setting| setting.unit == Unit::Choice) {
            let numbers: Vec<_> = words(setting).iter().map(|(_, number)| *number).collect();
            assert_eq!(numbers, (setting.least..=setting.most).collect::<Vec<_>>(), "{}", setting.name);
        }
    }

    #[test]
    fn settings_are_shown_as_they_are_written() {
        let shown = |name: &str| settings().find(|setting| setting.key == name).unwrap();
        let price = shown("price");
        assert_eq!((price.section, price.default.as_str()), ("policy", "2.0"));
        assert_eq!(price.accepted, "0.0 to 100.0");
        assert_eq!((shown("plan").default, shown("plan").accepted), ("\"10ms\"".to_owned(), "100us to 4s".to_owned()));
        assert_eq!((shown("sample").default, shown("sample").accepted), ("8".to_owned(), "0 to 64".to_owned()));
        let discipline = shown("discipline");
        assert_eq!((discipline.section, discipline.default.as_str()), ("workers", "\"fifo\""));
        assert_eq!(discipline.accepted, "fifo, shortest, class");
    }
}
