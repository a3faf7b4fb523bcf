//! The pages of the program itself that are in memory.
//!
//! Half of a small agent's memory is its own code, and most of that is needed once: to start, to join a cluster, for the
//! first of each kind of volume. The kernel keeps what was ever used until memory gets scarce.

use std::io;
use std::path::Path;

use rustix::mm::{Advice, madvise};

/// Where the kernel tells of a process's mappings.
const MAPPINGS: &str = "/proc/self/smaps";

/// Lets go of the pages of code, so that those that are needed come back from the kernel's cache of files, one by one,
/// and the others stay away. It returns how many bytes were in memory.
pub fn let_go() -> io::Result<u64> {
    let text = std::fs::read_to_string(Path::new(MAPPINGS))?;
    let mut resident = 0;
    for code in Code::all(&text) {
        release(&code)?;
        resident += code.resident;
    }
    Ok(resident)
}

#[expect(unsafe_code, reason = "nobody else's crate lets go of pages safely")]
fn release(code: &Code) -> io::Result<()> {
    let start = std::ptr::with_exposed_provenance_mut(code.start);
    // SAFETY: what is mapped here is the content of a file, executable, which nobody can write to and nobody wrote to
    // ([`Code::all`]). Whoever reads or runs it next finds it in the file, unchanged.
    unsafe { madvise(start, code.length, Advice::LinuxDontNeed) }?;
    Ok(())
}

/// A mapping of a file's code, without a page that differs from the file.
#[derive(Debug, PartialEq, Eq)]
struct Code {
    start: usize,
    length: usize,
    resident: u64,
}

impl Code {
    /// All of them in a text of [`MAPPINGS`]. One that a debugger wrote to is not among them.
    fn all(text: &str) -> Vec<Code> {
        let mut found = Vec::new();
        let mut current: Option<Code> = None;
        for line in text.lines() {
            let mut words = line.split_whitespace();
            let (first, second) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
            match first {
                "Rss:" => {
                    let kib: u64 = second.parse().unwrap_or_default();
                    current.iter_mut().for_each(|code| code.resident = 1024 * kib);
                }
                "Anonymous:" => found.extend(current.take().filter(|_| second == "0")),
                _ => {
                    // The third word after the permissions is the file's, which code without a file has not.
                    let is_file = words.nth(2).is_some_and(|inode| inode != "0");
                    if let Some((start, length)) = range(first) {
                        let code = Code { start, length, resident: 0 };
                        current = (second == "r-xp" && is_file).then_some(code);
                    }
                }
            }
        }
        found
    }
}

/// What `5627f0be9000-5627f1ae5000` says.
fn range(word: &str) -> Option<(usize, usize)> {
    let (start, end) = word.split_once('-')?;
    let (start, end) = (usize::from_str_radix(start, 16).ok()?, usize::from_str_radix(end, 16).ok()?);
    Some((start, end.checked_sub(start)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_code_of_files_that_nobody_wrote_to_is_let_go_of() {
        let mapping = |head: &str, anonymous: u32| {
            format!(
                "{head}\nSize: 8 kB\nRss:                4 kB\nAnonymous:   {anonymous} kB\nVmFlags: rd\n"
            )
        };
        let text = [
            mapping("00001000-00003000 r--p 00000000 fe:00 25 /bin/crablet", 0),
            mapping("00003000-00006000 r-xp 00002000 fe:00 25 /bin/crablet", 0),
            mapping("00006000-00008000 r--p 00005000 fe:00 25 /bin/crablet", 8),
            mapping("00010000-00012000 r-xp 00000000 fe:00 26 /lib/with a space.so", 0),
            mapping("00020000-00022000 r-xp 00000000 fe:00 27 /lib/debugged.so", 4),
            mapping("00030000-00032000 rwxp 00000000 fe:00 28 /lib/written.so", 0),
            mapping("00040000-00042000 r-xp 00000000 00:00 0 [vdso]", 0),
        ];
        let expected = [
            Code { start: 0x3000, length: 0x3000, resident: 4096 },
            Code { start: 0x10000, length: 0x2000, resident: 4096 },
        ];
        assert_eq!(Code::all(&text.concat()), expected);
    }

    #[test]
    fn a_program_that_let_go_of_its_code_runs_on_with_less_of_it() {
        let before = let_go().unwrap();
        let after: u64 = {
            let text = std::fs::read_to_string(MAPPINGS).unwrap();
            Code::all(&text).iter().map(|code| code.resident).sum()
        };
        assert!(before > 0 && after < before, "{before} {after}");
    }
}
