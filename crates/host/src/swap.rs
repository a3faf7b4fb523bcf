//! Swap space.

use std::io;
use std::path::Path;

/// The file in which the kernel lists its swap areas.
pub const PROC_SWAPS: &str = "/proc/swaps";

/// The swap areas in use, read from a file in the form of [`PROC_SWAPS`]. A kernel without swap has no such file.
pub fn areas(path: &Path) -> io::Result<Vec<String>> {
    let table = match std::fs::read_to_string(path) {
        Ok(table) => table,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let names = table.lines().skip(1).filter_map(|line| line.split_whitespace().next());
    Ok(names.map(String::from).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_below_the_header_is_an_area() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("swaps");
        for (table, expected) in [
            ("Filename\tType\tSize\tUsed\tPriority\n", &[][..]),
            (
                "Filename\tType\tSize\tUsed\tPriority\n/dev/sda2 partition 1 0 -2\n/swap file 2 0 -3\n",
                &["/dev/sda2", "/swap"],
            ),
            ("", &[]),
        ] {
            std::fs::write(&path, table).unwrap();
            assert_eq!(areas(&path).unwrap(), expected);
        }
        assert_eq!(areas(&directory.path().join("missing")).unwrap(), Vec::<String>::new());
    }
}
