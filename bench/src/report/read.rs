//! The files of a directory of results.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::{interconnect, latency, peers, throughput, trials};

/// Files that make a page. Those that end in `l` hold a value per line.
pub const FILES: [&str; 9] = [
    "throughput.json",
    "latency.json",
    "peers.json",
    "interconnect.json",
    "loss.jsonl",
    "burst.jsonl",
    "soak.jsonl",
    "scale.jsonl",
    "reload.jsonl",
];

/// The format that each must have.
const SCHEMAS: [&str; 9] = [
    throughput::SCHEMA,
    latency::SCHEMA,
    peers::SCHEMA,
    interconnect::SCHEMA,
    trials::SCHEMA,
    trials::SCHEMA,
    trials::SCHEMA,
    trials::SCHEMA,
    trials::SCHEMA,
];

/// What a directory holds: by file the values in it, the first of which names the machine.
#[derive(Debug, Default)]
pub struct Results {
    files: BTreeMap<&'static str, Vec<Value>>,
}

impl Results {
    /// Reads what is there.
    ///
    /// # Errors
    /// A file cannot be read, is no JSON, or is of another format.
    pub fn read(directory: &Path) -> Result<Self> {
        let mut results = Self::default();
        for (name, schema) in FILES.into_iter().zip(SCHEMAS) {
            let path = directory.join(name);
            let text = match fs::read_to_string(&path) {
                Ok(text) => text,
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                Err(error) => return Err(error).with_context(|| format!("cannot read {}", path.display())),
            };
            let values = parse(name, schema, &text).with_context(|| path.display().to_string())?;
            results.files.insert(name, values);
        }
        Ok(results)
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.files.is_empty()
    }

    /// The whole of a file with one value.
    pub fn whole(&self, name: &str) -> Option<&Value> {
        self.files.get(name)?.first()
    }

    /// The lines of a file behind its first one; none when it is not there.
    pub fn lines(&self, name: &str) -> &[Value] {
        self.files.get(name).map_or(&[], |values| values.get(1..).unwrap_or_default())
    }

    /// The machines: kernel, CPU, cores, by what each file says; each once.
    pub fn machines(&self) -> Vec<String> {
        let mut machines: Vec<String> = Vec::new();
        for value in self.files.values().filter_map(|values| values.first()) {
            let environment = &value["environment"];
            let text = |name: &str| environment[name].as_str().unwrap_or("?").to_owned();
            let cores = environment["cores"].as_u64().unwrap_or(0);
            let line = format!(
                "{}, {} cores, Linux {}; dataplane-bench {}",
                text("cpu"),
                cores,
                text("kernel"),
                text("version")
            );
            if !machines.contains(&line) {
                machines.push(line);
            }
        }
        machines
    }
}

fn parse(name: &str, schema: &str, text: &str) -> Result<Vec<Value>> {
    let values: Vec<Value> = if name.ends_with('l') {
        // A run that was killed may have left half a line.
        let lines = text.split_inclusive('\n').filter(|line| line.ends_with('\n'));
        lines.map(|line| serde_json::from_str(line).context("a line is no JSON")).collect::<Result<_>>()?
    } else {
        vec![serde_json::from_str(text).context("no JSON")?]
    };
    let found = values.first().and_then(|value| value["schema"].as_str()).unwrap_or("none");
    ensure!(found == schema, "format {found}, expected {schema}: made by another version of this program?");
    Ok(values)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_read_and_a_cut_one_is_left_out() {
        let text = "{\"schema\":\"dataplane.trials/1\"}\n{\"percent\":100}\n{\"perc";
        let values = parse("loss.jsonl", trials::SCHEMA, text).unwrap();
        assert_eq!(values.len(), 2);
        assert!(parse("loss.jsonl", trials::SCHEMA, "{\"a\":1}\n").unwrap_err().to_string().contains("format none"));
        assert!(parse("loss.jsonl", trials::SCHEMA, "x\n").is_err());
    }

    #[test]
    fn an_empty_directory_is_empty() {
        assert!(Results::read(Path::new("/nonexistent")).unwrap().is_empty());
    }
}
