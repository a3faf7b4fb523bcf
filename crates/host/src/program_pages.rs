//! The pages of the program itself that are in memory.
//!
//! Half of a small agent's memory is its own code, and most of that is needed once: to start, to join a cluster, for the
//! first of each kind of volume. The kernel keeps what was ever used until memory gets scarce. And whoever runs one page of
//! it gets those around it too, up to the end of the mapping ("fault-around": 64 KiB), so that what little is needed at rest,
//! a function here and there, would bring most of it back. So mappings are divided into small ones.

use std::fs::File;
use std::io::{self, BufRead, BufReader};

use rustix::mm::{Advice, madvise};

/// Where the kernel tells of a process's mappings.
const MAPPINGS: &str = "/proc/self/smaps";

/// How much the kernel may bring back at once. Half of it would save another megabyte, and have the kernel keep twice as
/// many mappings, of a quarter of a kilobyte each.
const BLOCK: usize = 16 << 10;

/// Lets go of the program's pages, so that those that are needed come back from the kernel's cache of files, some at a
/// time, and the others stay away. It returns how many bytes were in memory.
pub fn let_go() -> io::Result<u64> {
    let mut resident = 0;
    for mapping in Mapping::all(BufReader::new(File::open(MAPPINGS)?))? {
        for block in mapping.alternate_blocks() {
            // Mappings that differ in something are apart, and these pages are in no dump of memory anyway.
            advise(&block, Advice::LinuxDontDump)?;
        }
        advise(&mapping, Advice::LinuxDontNeed)?;
        resident += mapping.resident;
    }
    Ok(resident)
}

#[expect(unsafe_code, reason = "nobody else's crate lets go of pages safely")]
fn advise(mapping: &Mapping, advice: Advice) -> io::Result<()> {
    let start = std::ptr::with_exposed_provenance_mut(mapping.start);
    // SAFETY: what is mapped here is the content of a file, which nobody can write to and nobody wrote to
    // ([`Mapping::all`]). Whoever reads or runs it next finds it in the file, unchanged.
    unsafe { madvise(start, mapping.length, advice) }?;
    Ok(())
}

/// A mapping of a file's code or constants, without a page that differs from the file.
#[derive(Debug, Default, PartialEq, Eq)]
struct Mapping {
    start: usize,
    length: usize,
    resident: u64,
}

impl Mapping {
    /// All of them in a text of [`MAPPINGS`]. One that a debugger or the linker wrote to is not among them, though what they
    /// wrote is swapped out.
    fn all(text: impl BufRead) -> io::Result<Vec<Mapping>> {
        let mut found = Vec::new();
        let mut current: Option<Mapping> = None;
        for line in text.lines() {
            let line = line?;
            let mut words = line.split_whitespace();
            let (first, second) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
            match first {
                "Rss:" => {
                    let kib: u64 = second.parse().unwrap_or_default();
                    current.iter_mut().for_each(|mapping| mapping.resident = 1024 * kib);
                }
                "Anonymous:" => current = current.filter(|_| second == "0"),
                "Swap:" => found.extend(current.take().filter(|_| second == "0")),
                _ => {
                    let is_constant = matches!(second, "r-xp" | "r--p");
                    // The third word after the permissions is the file's, which code without a file has not.
                    let is_file = words.nth(2).is_some_and(|inode| inode != "0");
                    if let Some((start, length)) = range(first) {
                        current = (is_constant && is_file).then_some(Mapping { start, length, resident: 0 });
                    }
                }
            }
        }
        Ok(found)
    }

    /// Every other block of one that is larger than a block.
    fn alternate_blocks(&self) -> impl Iterator<Item = Mapping> {
        let (start, end) = (self.start, self.start + self.length);
        let is_divided = self.length <= BLOCK;
        let first = start.next_multiple_of(2 * BLOCK);
        let blocks = (first..if is_divided { first } else { end }).step_by(2 * BLOCK);
        blocks.map(move |start| Mapping { start, length: BLOCK.min(end - start), resident: 0 })
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

    fn all() -> Vec<Mapping> {
        Mapping::all(BufReader::new(File::open(MAPPINGS).unwrap())).unwrap()
    }

    #[test]
    fn only_what_is_of_files_and_nobody_wrote_to_is_let_go_of() {
        let mapping = |head: &str, anonymous: u32, swapped: u32| {
            format!(
                "{head}\nSize: 8 kB\nRss:                4 kB\nAnonymous:   {anonymous} kB\n\
                 Swap:    {swapped} kB\nVmFlags: rd\n"
            )
        };
        let text = [
            mapping("00001000-00003000 r--p 00000000 fe:00 25 /bin/crablet", 0, 0),
            mapping("00003000-00006000 r-xp 00002000 fe:00 25 /bin/crablet", 0, 0),
            mapping("00006000-00008000 r--p 00005000 fe:00 25 /bin/crablet", 8, 0),
            mapping("00008000-0000a000 r--p 00005000 fe:00 25 /bin/crablet", 0, 8),
            mapping("0000a000-0000c000 rw-p 00007000 fe:00 25 /bin/crablet", 0, 0),
            mapping("00010000-00012000 r-xp 00000000 fe:00 26 /lib/with a space.so", 0, 0),
            mapping("00020000-00022000 r-xp 00000000 fe:00 27 /lib/debugged.so", 4, 0),
            mapping("00030000-00032000 rwxp 00000000 fe:00 28 /lib/written.so", 0, 0),
            mapping("00040000-00042000 r-xp 00000000 00:00 0 [vdso]", 0, 0),
        ];
        let expected = [
            Mapping { start: 0x1000, length: 0x2000, resident: 4096 },
            Mapping { start: 0x3000, length: 0x3000, resident: 4096 },
            Mapping { start: 0x10000, length: 0x2000, resident: 4096 },
        ];
        assert_eq!(Mapping::all(text.concat().as_bytes()).unwrap(), expected);
    }

    #[test]
    fn a_program_that_let_go_of_its_code_runs_on_with_less_of_it_in_small_mappings() {
        let before = let_go().unwrap();
        let after = all();
        let resident: u64 = after.iter().map(|mapping| mapping.resident).sum();
        assert!(before > 0 && resident < before, "{before} {resident}");
        assert_eq!(after.iter().find(|mapping| mapping.length > 2 * BLOCK), None);
        let_go().unwrap();
        assert!(all().len() <= after.len(), "what is divided stays as it is");
    }
}
