//! `dataplane-bench report DIR`: one HTML page of what the benchmarks left in a directory, without anything from elsewhere, with
//! another directory beside it if asked for.
//!
//! | file | concern |
//! |---|---|
//! | `read` | the files of a directory, as far as they are there |
//! | `page` | the page: one section per benchmark |
//! | `interconnect` | the section of what the transports between nodes cost |
//! | `curves` | the numbers of a file as lines of a chart |
//! | `bars` | the numbers of a file as bars |

mod bars;
mod curves;
mod interconnect;
mod page;
mod read;

use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use clap::Args;

use self::read::Results;

/// Options of `report`.
#[derive(Args, Debug)]
pub struct Options {
    /// Directory with results: what `--out` of the benchmarks was.
    directory: PathBuf,
    /// Another one to compare with; its lines and figures are marked "before".
    #[arg(long, value_name = "DIR")]
    compare: Option<PathBuf>,
    /// Where to write the page [default: report.html in the directory].
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

/// Makes the page.
///
/// # Errors
/// There are no results in the directory, one is not of a format this program knows, or the page cannot be written.
pub fn run(options: &Options) -> Result<()> {
    let now = Results::read(&options.directory)?;
    if now.is_empty() {
        bail!(
            "no results in {}: run `cargo xtask bench …` with `--out` there first (files {})",
            options.directory.display(),
            read::FILES.join(", ")
        );
    }
    let before = options.compare.as_deref().map(Results::read).transpose()?;
    let html = page::html(&now, before.as_ref())?;
    let path = options.out.clone().unwrap_or_else(|| options.directory.join("report.html"));
    fs::write(&path, html).with_context(|| format!("cannot write {}", path.display()))?;
    println!("wrote {}", path.display());
    Ok(())
}
