//! The `dataplane` command.

use std::borrow::Cow;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use clap::{Args, Parser, Subcommand};
use dataplane_user::catalogue;
use dataplane_user::config::{self, Config};
use dataplane_user::explain::{self, Question};
use dataplane_user::keys;
use dataplane_user::maps::{DEFAULT_BPFFS, PinDir, PinError};
use dataplane_user::node::{Node, embedded_object, known_functions};
use dataplane_user::reload::{self, Answer};
use dataplane_user::status::{self, Status};
use rustix::process::Signal;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGUSR1, SIGUSR2};

/// How often a running node looks whether its interfaces are there.
const LOOK_AT_INTERFACES: Duration = Duration::from_secs(1);
/// Exit codes: 0 ok, 1 failed, 2 usage, 3 not running.
const NOT_RUNNING: u8 = 3;

#[derive(Parser)]
#[command(
    name = "dataplane",
    version,
    about = "One active router out of a cluster of Linux hosts: XDP, AF_XDP, per-packet load balancing."
)]
struct Cli {
    #[command(subcommand)]
    command: Action,
}

#[derive(Subcommand)]
#[command(rename_all = "kebab-case")]
enum Action {
    /// Run a node in the foreground until SIGINT or SIGTERM; SIGHUP reloads its configuration, SIGUSR1 drains it, SIGUSR2
    /// undoes that.
    Run(Run),
    /// Show a running node: workers, peers, functions, ledger.
    Status(StatusArgs),
    /// Explain what a running node would do with a packet now, and why.
    Explain(Explain),
    /// Have a running node read its configuration again, without losing a packet.
    Reload(ReloadArgs),
    /// Have a running node take no more work of others, before it is stopped or its host is serviced.
    Drain(Drain),
    /// Stop nodes of this host and remove their pins, also those that a killed process left.
    Unload(Unload),
    /// Check or print a configuration.
    #[command(subcommand)]
    Config(ConfigCommand),
    /// Make keys for the interconnect.
    #[command(subcommand)]
    Key(KeyCommand),
    /// List packet functions.
    Functions,
    /// List policies: where they can run, what they need; or their settings.
    Policies(Policies),
    /// List counters: what can happen to a frame.
    Counters,
    /// Remove a node's pins when its process ends (started by `run`).
    #[command(hide = true)]
    Janitor(Janitor),
}

#[derive(Args)]
struct Bpffs {
    /// Where bpffs is mounted.
    #[arg(long, value_name = "DIR", default_value = DEFAULT_BPFFS)]
    bpffs: PathBuf,
}

#[derive(Args)]
struct Run {
    /// Configuration file (`dataplane config example` prints one).
    #[arg(short, long, value_name = "FILE")]
    config: PathBuf,
    /// eBPF object instead of the one built in.
    #[arg(long, value_name = "FILE")]
    object: Option<PathBuf>,
    #[command(flatten)]
    bpffs: Bpffs,
}

#[derive(Args)]
struct StatusArgs {
    /// Node; without it every node of this host.
    #[arg(short, long, value_parser = node_name)]
    node: Option<String>,
    /// JSON: one object for --node, else an array.
    #[arg(short, long)]
    json: bool,
    #[command(flatten)]
    bpffs: Bpffs,
}

#[derive(Args)]
struct Explain {
    /// Node.
    #[arg(value_parser = node_name)]
    node: String,
    /// The configuration that the node was started with: the programs' parameters are in no map.
    #[arg(short, long, value_name = "FILE")]
    config: PathBuf,
    /// Function that the packet names.
    #[arg(short, long, value_name = "NAME")]
    function: String,
    /// Payload.
    #[arg(short, long, value_name = "BYTES", default_value_t = 64, value_parser = clap::value_parser!(u16).range(..=65_000))]
    length: u16,
    /// Operand; without it the packet has none.
    #[arg(short, long, value_name = "N")]
    operand: Option<u32>,
    /// Service class, 0 (lowest) to 7.
    #[arg(long, value_name = "C", default_value_t = 0, value_parser = clap::value_parser!(u8).range(..=7))]
    class: u8,
    /// Hash of the flow.
    #[arg(long, value_name = "HASH", default_value = "0", value_parser = hash)]
    flow: u32,
    /// Hash of what the packet is about; without it, that of its flow.
    #[arg(long, value_name = "HASH", value_parser = hash)]
    key: Option<u32>,
    /// Worker of the queue that the packet arrives on.
    #[arg(short, long, value_name = "W", default_value_t = 0)]
    worker: u32,
    /// The random number that the decision gets; without it, one is drawn.
    #[arg(long, value_name = "N", value_parser = hash)]
    random: Option<u32>,
    /// JSON.
    #[arg(short, long)]
    json: bool,
    #[command(flatten)]
    bpffs: Bpffs,
}

#[derive(Args)]
struct ReloadArgs {
    /// Node. It reads the file it was started with, and the object if it was started with --object.
    #[arg(short, long, value_parser = node_name)]
    node: String,
    #[command(flatten)]
    bpffs: Bpffs,
}

#[derive(Args)]
struct Drain {
    /// Node.
    #[arg(short, long, value_parser = node_name)]
    node: String,
    /// The other way round: it takes work again.
    #[arg(long)]
    undo: bool,
    #[command(flatten)]
    bpffs: Bpffs,
}

#[derive(Args)]
struct Policies {
    /// List their settings instead: keys, defaults, what is accepted.
    #[arg(long)]
    settings: bool,
    /// JSON.
    #[arg(short, long)]
    json: bool,
}

#[derive(Args)]
#[group(required = true, args = ["node", "all"])]
struct Unload {
    /// Node.
    #[arg(short, long, value_parser = node_name)]
    node: Option<String>,
    /// Every node of this host, whoever started it (demos and tests too).
    #[arg(long)]
    all: bool,
    #[command(flatten)]
    bpffs: Bpffs,
}

#[derive(Subcommand)]
enum ConfigCommand {
    /// Check a file; prints every error in it.
    Check {
        /// The file.
        file: PathBuf,
    },
    /// Print the complete configuration that a file means, defaults included.
    Show {
        /// The file.
        file: PathBuf,
    },
    /// Print a commented example.
    Example,
}

#[derive(Subcommand)]
enum KeyCommand {
    /// Print a line for a key file, with a fresh secret.
    New {
        /// Number of the key: another one than those in use.
        #[arg(short, long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=15))]
        number: u8,
    },
}

#[derive(Args)]
struct Janitor {
    /// The node.
    #[arg(value_parser = node_name)]
    node: String,
    #[command(flatten)]
    bpffs: Bpffs,
}

/// A node's name as the configuration allows it: it becomes part of a path.
fn node_name(text: &str) -> Result<String, String> {
    config::node_name_problem(text).map_or_else(
        || Ok(text.to_owned()),
        |what| Err(format!("it {what}; a node's name is a letter, then at most 31 of a-z, 0-9 and -")),
    )
}

/// 32 bits, decimal or hexadecimal.
fn hash(text: &str) -> Result<u32, String> {
    let parsed = text.strip_prefix("0x").map_or_else(|| text.parse(), |digits| u32::from_str_radix(digits, 16));
    parsed.map_err(|error| format!("{error}; write 32 bits, decimal or 0x and hexadecimal"))
}

fn main() -> ExitCode {
    let done = match Cli::parse().command {
        Action::Run(options) => run(&options),
        Action::Status(options) => show_status(&options),
        Action::Explain(options) => explain(&options),
        Action::Reload(options) => ask_to_reload(&options),
        Action::Drain(options) => drain(&options),
        Action::Unload(options) => unload(&options),
        Action::Config(command) => configure(&command),
        Action::Key(KeyCommand::New { number }) => keys::fresh_line(number).and_then(print),
        Action::Functions => print(catalogue::functions()),
        Action::Policies(options) => policies(&options),
        Action::Counters => print(catalogue::counters()),
        Action::Janitor(options) => janitor(&options),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            complain(&format!("error: {error:#}"));
            let not_running = matches!(error.downcast_ref(), Some(PinError::NotRunning(_)));
            if not_running { ExitCode::from(NOT_RUNNING) } else { ExitCode::FAILURE }
        }
    }
}

/// Prints a line; that nobody can read it is no reason to end.
fn say(line: &str) {
    let mut out = io::stdout().lock();
    let _ = writeln!(out, "{line}").and_then(|()| out.flush());
}

/// As [`say`], on standard error.
fn complain(line: &str) {
    let _ = writeln!(io::stderr().lock(), "{line}");
}

/// Prints text; that the reader has closed the pipe is no error.
fn print(text: String) -> Result<()> {
    match io::stdout().lock().write_all(text.as_bytes()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(error.into()),
        _ => Ok(()),
    }
}

fn run(options: &Run) -> Result<()> {
    // Before anything is claimed, so that no moment is left in which a signal ends the process half-way.
    let mut signals = signal_hook::iterator::Signals::new([SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2])?;
    let had_terminal = has_terminal();
    let (config, object) = read_input(options)?;
    // Before the node: whenever this process is killed, somebody removes its pins.
    let watch = Watch::start(&config.node.name, &options.bpffs.bpffs)?;
    let mut node = Node::start(&config, &object, &options.bpffs.bpffs)?;
    for notice in &node.notices {
        complain(&format!("warning: {notice}"));
    }
    for line in node.describe() {
        say(&line);
    }
    let (name, policy) = (&config.node.name, config.policy.kind.name());
    say(&format!("node {name} runs policy {policy}; maps in {}", node.pins().path().display()));
    say("ready");
    let (mut looked, mut refused) = (Instant::now(), None);
    let trouble = loop {
        if node.is_broken() {
            break Some("BUG: a thread of the node has ended".to_owned());
        }
        if looked.elapsed() > LOOK_AT_INTERFACES {
            looked = Instant::now();
            if node.refused() != refused {
                refused = node.refused();
                complain(&refused.map_or("the cluster lets this node in".to_owned(), |why| format!("warning: {why}")));
            }
            if let Some(name) = node.lost_interface() {
                break Some(format!(
                    "interface {name} is gone\n  why: it was removed or made anew while the node ran\n  do:  start the node again when it is back"
                ));
            }
        }
        if let Some(signal) = signals.pending().next() {
            // A terminal that was closed sends it, too, and nobody would know of a node that ran on.
            if signal == SIGHUP && (!had_terminal || has_terminal()) {
                if let Err(error) = reload(options, &mut node) {
                    break Some(format!("{error:#}"));
                }
                continue;
            }
            if matches!(signal, SIGUSR1 | SIGUSR2) {
                node.drain(signal == SIGUSR1);
                say(if signal == SIGUSR1 {
                    "draining: no more work of other nodes"
                } else {
                    "takes work of others again"
                });
                continue;
            }
            let name = signal_hook::low_level::signal_name(signal).unwrap_or("a signal");
            say(&format!("{name}: leaving the cluster"));
            break None;
        }
        std::thread::sleep(Duration::from_millis(20));
    };
    node.stop()?;
    drop(watch);
    say("stopped");
    trouble.map_or(Ok(()), |trouble| Err(anyhow::anyhow!(trouble)))
}

/// The configuration and the object that `run` was told to use, as they are now.
fn read_input(options: &Run) -> Result<(Config, Cow<'static, [u8]>)> {
    let config = Config::load(&options.config, &known_functions())?;
    let object = match (&options.object, embedded_object()) {
        (Some(path), _) => Cow::Owned(std::fs::read(path).with_context(|| format!("cannot read {}", path.display()))?),
        (None, Some(embedded)) => Cow::Borrowed(embedded),
        (None, None) => bail!(
            "this binary has no eBPF object built in\n  why: it was built without one\n  do:  cargo xtask build, or give --object FILE"
        ),
    };
    Ok((config, object))
}

/// Reads everything again and goes on with it. What is refused changes nothing, and is said.
///
/// # Errors
/// It failed half-way: the node must stop.
fn reload(options: &Run, node: &mut Node) -> Result<()> {
    let prepared = read_input(options).and_then(|(config, object)| node.prepare(config, &object));
    let prepared = match prepared {
        Ok(prepared) => prepared,
        Err(error) => {
            let text = format!("{error:#}");
            complain(&format!("not reloaded: {text}"));
            node.answer_reload(false, &text);
            return Ok(());
        }
    };
    let changed = node.take(prepared)?;
    say(&format!("reloaded: {changed}"));
    node.answer_reload(true, &changed);
    Ok(())
}

/// Whether this process has a terminal that could end it.
fn has_terminal() -> bool {
    std::fs::File::open("/dev/tty").is_ok()
}

/// A process that outlives this one by a moment and removes the pins if this one could not (`kill -9`).
struct Watch {
    child: Child,
}

impl Watch {
    fn start(node: &str, bpffs: &Path) -> Result<Self> {
        use std::os::unix::process::CommandExt;
        let child = Command::new(std::env::current_exe()?)
            .arg("janitor")
            .arg(node)
            .arg("--bpffs")
            .arg(bpffs)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            // Its own group: a signal to ours (Ctrl-C) must not end it before us.
            .process_group(0)
            .spawn()
            .context("cannot start the process that removes the pins after a crash")?;
        Ok(Self { child })
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        // Closing the pipe is the signal.
        drop(self.child.stdin.take());
        let _ = self.child.wait();
    }
}

fn janitor(options: &Janitor) -> Result<()> {
    // Blocks until the other end is closed: the owner has ended, in whatever way.
    let _ = io::stdin().read_to_end(&mut Vec::new());
    match PinDir::of(&options.bpffs.bpffs, &options.node).remove_leftovers() {
        Err(PinError::NotRunning(_)) => Ok(()),
        // Not removed: another process has claimed the name since.
        done => Ok(done.map(|_| ())?),
    }
}

fn show_status(options: &StatusArgs) -> Result<()> {
    let bpffs = &options.bpffs.bpffs;
    if let Some(node) = &options.node {
        let dir = PinDir::of(bpffs, node);
        let status = Status::read(&dir)?;
        print(if options.json { serde_json::to_string(&status)? + "\n" } else { status.to_string() })?;
        // What a dead node has left is shown, but the exit code says that it does not run.
        return if status.is_running() { Ok(()) } else { Err(PinError::NotRunning(dir.path().to_owned()).into()) };
    }
    let mut statuses = Vec::new();
    for dir in status::all(bpffs)? {
        match Status::read(&dir) {
            Ok(status) => statuses.push(status),
            // Starting, stopping, or left over: no reason to hide the others.
            Err(error) => complain(&format!("warning: {}: {error}", dir.node())),
        }
    }
    print(if options.json {
        serde_json::to_string(&statuses)? + "\n"
    } else {
        statuses.iter().map(Status::to_string).collect::<Vec<_>>().join("\n")
    })
}

fn explain(options: &Explain) -> Result<()> {
    let config = Config::load(&options.config, &known_functions())?;
    let question = Question {
        function: &options.function,
        worker: options.worker,
        length: options.length,
        operand: options.operand,
        class: options.class,
        flow: options.flow,
        key: options.key,
        random: options.random,
    };
    let explanation = explain::explain(&PinDir::of(&options.bpffs.bpffs, &options.node), &config, &question)?;
    print(if options.json { serde_json::to_string(&explanation)? + "\n" } else { explanation.to_string() })
}

fn policies(options: &Policies) -> Result<()> {
    print(match (options.settings, options.json) {
        (false, false) => catalogue::policies_table(),
        (false, true) => serde_json::to_string(&catalogue::policies())? + "\n",
        (true, false) => catalogue::settings_table(),
        (true, true) => serde_json::to_string(&config::settings().collect::<Vec<_>>())? + "\n",
    })
}

fn ask_to_reload(options: &ReloadArgs) -> Result<()> {
    let Answer { is_taken, text } = reload::ask(&PinDir::of(&options.bpffs.bpffs, &options.node))?;
    if is_taken {
        return print(format!("node {} is reloaded: {text}\n", options.node));
    }
    bail!("node {} goes on as before: {text}", options.node)
}

/// Tells a node by a signal, and waits until its own row says that it has heard.
fn drain(options: &Drain) -> Result<()> {
    let dir = PinDir::of(&options.bpffs.bpffs, &options.node);
    reload::signal(reload::owner(&dir)?, if options.undo { Signal::USR2 } else { Signal::USR1 })?;
    let wanted = if options.undo { "running" } else { "draining" };
    let deadline = Instant::now() + Duration::from_secs(5);
    while Status::read(&dir)?.node.state != wanted {
        if Instant::now() > deadline {
            bail!(
                "node {0} does not say that it is {wanted}\n  why: it has not looked at the signal, or ended\n  do:  dataplane status --node {0}",
                options.node
            );
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    print(format!("node {} is {wanted}\n", options.node))
}

fn unload(options: &Unload) -> Result<()> {
    let bpffs = &options.bpffs.bpffs;
    let dirs = match &options.node {
        Some(node) => vec![PinDir::of(bpffs, node)],
        None => PinDir::all(bpffs),
    };
    if dirs.is_empty() {
        say("no node is running");
    }
    for dir in dirs {
        if !dir.path().exists() {
            return Err(PinError::NotRunning(dir.path().to_owned()).into());
        }
        if let Some(pid) = dir.live_owner() {
            end(&dir, pid)?;
        }
        match dir.remove_leftovers() {
            // The node has removed its pins itself.
            Ok(true) | Err(PinError::NotRunning(_)) if !dir.path().exists() => {}
            Ok(_) => bail!(
                "node {} is starting or stopping\n  why: its process holds {}\n  do:  try again in a moment",
                dir.node(),
                dir.path().display()
            ),
            Err(error) => return Err(error.into()),
        }
        say(&format!("node {} is unloaded", dir.node()));
    }
    Ok(())
}

/// Asks the node's process to end and waits for it.
fn end(dir: &PinDir, pid: u32) -> Result<()> {
    reload::signal(pid, Signal::TERM)?;
    let deadline = Instant::now() + Duration::from_secs(5);
    while dir.is_owned() {
        if Instant::now() > deadline {
            bail!(
                "process {pid} does not end\n  why: it has not reacted to SIGTERM for 5 s\n  do:  kill -9 {pid}; its programs are detached then, and its pins removed"
            );
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    Ok(())
}

fn configure(command: &ConfigCommand) -> Result<()> {
    match command {
        ConfigCommand::Example => print(config::example().to_owned()),
        ConfigCommand::Show { file } => print(Config::load(file, &known_functions())?.to_toml()),
        ConfigCommand::Check { file } => {
            let config = Config::load(file, &known_functions())?;
            print(format!(
                "{}: node {} with {} peers is in order\n",
                file.display(),
                config.node.name,
                config.peers.len()
            ))
        }
    }
}
