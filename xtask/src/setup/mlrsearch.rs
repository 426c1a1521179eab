//! The Python package MLRsearch in an environment of its own, for the test that compares our search with it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use crate::sh;

/// The package and its version, as pip names them.
const PACKAGE: &str = "MLRsearch==1.2.1";

/// Installs the package below `directory`. Where Python or the Python index is missing, the reason is printed and there is no
/// such directory afterwards: the comparison is then left out.
pub fn offer(directory: &Path) {
    if let Err(error) = ensure(directory) {
        eprintln!("setup: the search is not compared with the package MLRsearch: {error:#}");
        // Half an environment would be taken for a whole one.
        let _ = fs::remove_dir_all(directory);
    }
}

/// The Python of the environment in `directory`.
pub fn python(directory: &Path) -> PathBuf {
    directory.join("bin/python")
}

fn ensure(directory: &Path) -> Result<()> {
    let python = python(directory);
    let has_package = || sh::succeeds(Command::new(&python).args(["-c", "import MLRsearch"]));
    if !has_package() {
        super::missing(PACKAGE, "its search is compared with ours", "installing it with pip");
        sh::run(Command::new("python3").args(["-m", "venv", "--clear"]).arg(directory))
            .context("no Python environment")?;
        let mut pip = Command::new(&python);
        pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", PACKAGE]);
        sh::run(&mut pip).context("the Python index did not give it")?;
    }
    Ok(())
}
