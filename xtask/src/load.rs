//! `cargo xtask load`: starts `dataplane run` in the background and waits until it works.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use clap::Args;

use crate::paths::Paths;
use crate::setup::Scope;
use crate::{build, privilege, sh};

/// How often a starting node's log is looked at.
const POLL: Duration = Duration::from_millis(200);

/// Name of a node that is started by interface alone.
const DEFAULT_NODE: &str = "node1";

/// How much of the log is shown when a node does not start.
const LOG_LINES: usize = 20;

/// Options of `load`.
#[derive(Args)]
pub struct Options {
    /// Configuration of the node.
    #[arg(long, required_unless_present = "iface", conflicts_with = "iface")]
    config: Option<PathBuf>,
    /// Instead of a configuration: a node by itself, with this interface as its port and defaults for the rest.
    #[arg(long)]
    iface: Option<String>,
    /// Name of the node, where the file does not write it as `name = "…"` under `[node]`.
    #[arg(long)]
    node: Option<String>,
    /// Seconds to wait until the node works.
    #[arg(long, default_value_t = 15)]
    wait: u64,
}

/// Starts the node and returns when it works; a node that ends, or stays silent, is an error that shows its log.
pub fn run(paths: &Paths, options: &Options) -> Result<ExitCode> {
    fs::create_dir_all(paths.logs()).with_context(|| format!("cannot create {}", paths.logs().display()))?;
    build::release(paths, Scope::Run, &["dataplane-user"])?;
    let node = node_name(options)?;
    // Before anything of a running node is overwritten.
    if sh::succeeds(privilege::command(paths.release("dataplane"))?.args(["status", "--node", &node, "-j"])) {
        bail!("{node} runs already: `cargo xtask unload --node {node}` stops it");
    }
    let config = configuration(paths, options, &node)?;
    let log = paths.logs().join(format!("{node}.log"));
    let mut child = start(paths, &config, &log)?;
    let deadline = Instant::now() + Duration::from_secs(options.wait);
    loop {
        if let Some(status) = child.try_wait().context("cannot wait for the node")? {
            bail!("{node} ended ({status}); the end of {}:\n{}", log.display(), tail(&log));
        }
        if is_ready(&log) {
            println!("{node} runs; log: {}; `cargo xtask unload --node {node}` stops it", log.display());
            return Ok(ExitCode::SUCCESS);
        }
        if Instant::now() >= deadline {
            let (wait, id) = (options.wait, child.id());
            bail!("{node} (process {id}, still running) is silent for {wait} s; {}:\n{}", log.display(), tail(&log));
        }
        thread::sleep(POLL);
    }
}

/// The configuration to start with: the one given, or one written for the interface given.
fn configuration(paths: &Paths, options: &Options, node: &str) -> Result<PathBuf> {
    if let Some(config) = &options.config {
        return fs::canonicalize(config).with_context(|| format!("cannot read {}", config.display()));
    }
    let config = paths.logs().join(format!("{node}.toml"));
    let interface = options.iface.as_deref().unwrap_or_default();
    fs::write(&config, single_node(node, interface)).with_context(|| format!("cannot write {}", config.display()))?;
    Ok(config)
}

/// A node by itself; `dataplane run` judges both names.
fn single_node(node: &str, interface: &str) -> String {
    format!("[node]\nname = {node:?}\nid = 1\n\n[[port]]\ninterface = {interface:?}\n")
}

fn node_name(options: &Options) -> Result<String> {
    let (Some(config), None) = (&options.config, &options.node) else {
        return Ok(options.node.clone().unwrap_or_else(|| DEFAULT_NODE.to_owned()));
    };
    let text = fs::read_to_string(config).with_context(|| format!("cannot read {}", config.display()))?;
    let name = configured_name(&text);
    Ok(name.with_context(|| format!("no node name found in {}: give it with --node", config.display()))?.to_owned())
}

/// The name under `[node]` in a configuration written the usual way. `dataplane` reads the file in full and judges it;
/// here the name only says whom to ask and what to call the log.
fn configured_name(text: &str) -> Option<&str> {
    let lines = text.lines().map(str::trim);
    let node = lines.skip_while(|line| *line != "[node]").skip(1).take_while(|line| !line.starts_with('['));
    let value = node.filter_map(|line| line.split_once('=')).find(|(key, _)| key.trim() == "name")?.1;
    let name = value.trim().strip_prefix('"')?.split('"').next()?;
    (!name.is_empty()).then_some(name)
}

/// Starts the node in a session of its own, so that closing the terminal does not stop it.
fn start(paths: &Paths, config: &Path, log: &Path) -> Result<Child> {
    let output = File::create(log).with_context(|| format!("cannot create {}", log.display()))?;
    let errors = output.try_clone().context("cannot share the log")?;
    let mut command = Command::new("setsid");
    command.args(privilege::prefix()?).arg(paths.release("dataplane")).args(["run", "--config"]).arg(config);
    command.stdin(Stdio::null()).stdout(output).stderr(errors);
    sh::spawn(&mut command)
}

/// Whether the node has said that it works.
fn is_ready(log: &Path) -> bool {
    fs::read_to_string(log).is_ok_and(|text| text.lines().any(|line| line == "ready"))
}

/// The last lines of a log; an unreadable one says so itself.
fn tail(log: &Path) -> String {
    let text = fs::read_to_string(log).unwrap_or_else(|error| error.to_string());
    let lines = text.lines().collect::<Vec<_>>();
    lines[lines.len().saturating_sub(LOG_LINES)..].join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_is_read_from_its_own_table() {
        let text = "# a node\nname = \"no\"\n[node]\nid = 3\n  name = \"alpha\" # first\n\n[[peer]]\nname = \"beta\"\n";
        assert_eq!(configured_name(text), Some("alpha"));
        for text in
            ["", "[node]\n[peer]\nname = \"beta\"", "[node]\nname = \"\"", "[node]\nname = 3", "[peer]\nname = \"b\""]
        {
            assert_eq!(configured_name(text), None, "{text}");
        }
    }

    #[test]
    fn a_node_by_itself_has_one_port() {
        let text = single_node("edge", "eth7");
        assert_eq!(text, "[node]\nname = \"edge\"\nid = 1\n\n[[port]]\ninterface = \"eth7\"\n");
        assert_eq!(configured_name(&text), Some("edge"));
    }

    #[test]
    fn a_log_that_is_not_there_says_so() {
        assert!(tail(Path::new("/no/such/log")).contains("No such file"));
    }
}
