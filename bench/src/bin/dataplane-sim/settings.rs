//! Options that several commands have.

use anyhow::{Context, Result, ensure};
use clap::Args;
use dataplane_common::tuning::Tuning;

/// Settings of the policies.
#[derive(Args)]
pub struct Settings {
    /// A setting of the policies, NAME=VALUE; may be repeated.
    #[arg(long = "set", value_name = "NAME=VALUE")]
    settings: Vec<String>,
}

impl Settings {
    /// The settings, those not named with their defaults.
    ///
    /// # Errors
    /// There is no such setting, or its value is impossible.
    pub fn tuning(&self) -> Result<Tuning> {
        let mut tuning = Tuning::DEFAULT;
        for setting in &self.settings {
            let (name, value) = setting.split_once('=').with_context(|| format!("--set {setting}: NAME=VALUE"))?;
            let names = || Tuning::ALL.iter().map(|setting| setting.name).collect::<Vec<_>>().join(", ");
            let about = Tuning::ALL.iter().find(|about| about.name == name);
            let about = about.with_context(|| format!("no setting {name}; there are {}", names()))?;
            let number: u32 = value.parse().with_context(|| format!("--set {setting}: a whole number"))?;
            let bounds = about.least..=about.most;
            ensure!(bounds.contains(&number), "--set {setting}: {} to {}", about.least, about.most);
            if let Some(place) = tuning.get_mut(name) {
                *place = number;
            }
        }
        Ok(tuning)
    }

    /// The options that give these settings again.
    pub fn words(&self) -> impl Iterator<Item = String> {
        self.settings.iter().map(|setting| format!("--set {setting}"))
    }
}

/// `count` seeds from `first` on.
///
/// # Errors
/// There are none.
pub fn run_seeds(first: u64, count: u64) -> Result<Vec<u64>> {
    ensure!(count > 0, "no seeds: nothing to run");
    Ok((0..count).map(|run| first.wrapping_add(run)).collect())
}
