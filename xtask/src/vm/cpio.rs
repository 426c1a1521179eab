//! Writes an archive in the `newc` format of cpio, which the kernel unpacks as its first file system
//! (`Documentation/driver-api/early-userspace/buffer-format.rst`).

use std::io::{self, Write};

/// File types in the mode of an entry (`inode(7)`).
const DIRECTORY: u32 = 0o040_000;
const REGULAR: u32 = 0o100_000;
const SYMLINK: u32 = 0o120_000;

/// Name of the entry that ends an archive.
const TRAILER: &str = "TRAILER!!!";

/// An archive that is being written. Parents must come before what lies in them.
pub struct Archive<W> {
    output: W,
    inode: u32,
}

impl<W: Write> Archive<W> {
    /// Begins an archive.
    pub fn new(output: W) -> Self {
        Self { output, inode: 0 }
    }

    /// Adds a directory; `path` is absolute.
    pub fn directory(&mut self, path: &str) -> io::Result<()> {
        self.entry(path, DIRECTORY | 0o755, &[])
    }

    /// Adds a file with `permissions`.
    pub fn file(&mut self, path: &str, permissions: u32, content: &[u8]) -> io::Result<()> {
        self.entry(path, REGULAR | permissions, content)
    }

    /// Adds a symbolic link.
    pub fn symlink(&mut self, path: &str, target: &str) -> io::Result<()> {
        self.entry(path, SYMLINK | 0o777, target.as_bytes())
    }

    /// Ends the archive and returns what it was written to.
    pub fn finish(mut self) -> io::Result<W> {
        self.write(0, TRAILER, 0, &[])?;
        self.output.flush()?;
        Ok(self.output)
    }

    fn entry(&mut self, path: &str, mode: u32, content: &[u8]) -> io::Result<()> {
        // Each entry has an inode of its own: those that share one are hard links.
        self.inode += 1;
        self.write(self.inode, path.trim_start_matches('/'), mode, content)
    }

    /// Header, name and content, the last two padded to four bytes. Everything belongs to root; times are zero, so that
    /// the same content gives the same archive.
    fn write(&mut self, inode: u32, name: &str, mode: u32, content: &[u8]) -> io::Result<()> {
        let too_large = |_| io::Error::new(io::ErrorKind::FileTooLarge, format!("{name}: 4 GiB or more"));
        let length = u32::try_from(content.len()).map_err(too_large)?;
        let name_length = u32::try_from(name.len() + 1).map_err(too_large)?;
        let (owner, group, links, time) = (0, 0, 1, 0);
        let (device, special, checksum) = ([0, 0], [0, 0], 0);
        let fields = [
            inode,
            mode,
            owner,
            group,
            links,
            time,
            length,
            device[0],
            device[1],
            special[0],
            special[1],
            name_length,
            checksum,
        ];
        let mut header = String::from("070701");
        for field in fields {
            header.push_str(&format!("{field:08x}"));
        }
        self.output.write_all(header.as_bytes())?;
        self.output.write_all(name.as_bytes())?;
        self.output.write_all(&[0])?;
        self.pad(header.len() + name.len() + 1)?;
        self.output.write_all(content)?;
        self.pad(content.len())
    }

    fn pad(&mut self, length: usize) -> io::Result<()> {
        self.output.write_all(&[0; 3][..length.next_multiple_of(4) - length])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The entries of an archive by their own arithmetic: name, mode, content.
    fn read(mut bytes: &[u8]) -> Vec<(String, u32, Vec<u8>)> {
        let mut entries = Vec::new();
        let mut at = 0;
        loop {
            assert_eq!(&bytes[..6], b"070701");
            assert_eq!(at % 4, 0, "a header begins at a multiple of four");
            let field = |index: usize| {
                let text = std::str::from_utf8(&bytes[6 + 8 * index..14 + 8 * index]).unwrap();
                usize::from_str_radix(text, 16).unwrap()
            };
            let (mode, length, name_length) = (field(1), field(6), field(11));
            let name = String::from_utf8(bytes[110..110 + name_length - 1].to_vec()).unwrap();
            assert_eq!(bytes[110 + name_length - 1], 0);
            let start = (110 + name_length).next_multiple_of(4);
            if name == "TRAILER!!!" {
                return entries;
            }
            entries.push((name, mode as u32, bytes[start..start + length].to_vec()));
            let end = (start + length).next_multiple_of(4);
            at += end;
            bytes = &bytes[end..];
        }
    }

    #[test]
    fn every_length_of_name_and_content_is_padded_to_four() {
        let mut archive = Archive::new(Vec::new());
        archive.directory("/a").unwrap();
        let contents = (0..6).map(|length| vec![7_u8; length]).collect::<Vec<_>>();
        for content in &contents {
            archive.file(&format!("/a/{}", "n".repeat(content.len() + 1)), 0o644, content).unwrap();
        }
        archive.symlink("/link", "a/n").unwrap();
        let entries = read(&archive.finish().unwrap());
        assert_eq!(entries[0], ("a".to_owned(), 0o040_755, Vec::new()));
        for (entry, content) in entries[1..7].iter().zip(&contents) {
            let name = format!("a/{}", "n".repeat(content.len() + 1));
            assert_eq!(*entry, (name, 0o100_644, content.clone()));
        }
        assert_eq!(entries[7], ("link".to_owned(), 0o120_777, b"a/n".to_vec()));
        assert_eq!(entries.len(), 8);
    }

    #[test]
    fn the_same_content_gives_the_same_archive() {
        let write = || {
            let mut archive = Archive::new(Vec::new());
            archive.file("/init", 0o755, b"#!/busybox/sh\n").unwrap();
            archive.finish().unwrap()
        };
        assert_eq!(write(), write());
    }
}
