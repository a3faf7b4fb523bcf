//! Limits on huge pages, which have a file for each size of page.

use std::io;
use std::path::Path;

use super::control::{self, ControlFiles};
use super::{CgroupError, HugePages};

/// What counts as no limit. A number, since the two versions have different words for it.
const UNLIMITED: u64 = 1 << 62;

/// Writes the limit for every size of page, where the cgroup has limits on huge pages at all. `suffix` is what the version
/// calls a limit.
pub(super) fn apply(
    files: &dyn ControlFiles,
    cgroup: &Path,
    suffix: &str,
    huge_pages: &HugePages,
) -> Result<(), CgroupError> {
    if *huge_pages == HugePages::Unchanged {
        return Ok(());
    }
    let sizes = sizes(files, cgroup, suffix)?;
    if sizes.is_empty() {
        return Ok(());
    }
    let wanted: Vec<(String, u64)> = match huge_pages {
        HugePages::Unchanged => Vec::new(),
        HugePages::Unlimited => sizes.into_iter().map(|size| (size, UNLIMITED)).collect(),
        HugePages::Only(limits) => {
            let named: Vec<(String, u64)> =
                limits.iter().map(|(size, limit)| (size_name(*size), *limit)).collect();
            let others = sizes.into_iter().filter(|size| !named.iter().any(|(named, _)| named == size));
            others.map(|size| (size, 0)).chain(named.clone()).collect()
        }
    };
    for (size, limit) in wanted {
        let value = limit.to_string();
        control::write(files, cgroup, &format!("hugetlb.{size}.{suffix}"), &value)?;
        // Pages that are reserved and not yet touched are counted apart, by newer kernels only.
        match control::write(files, cgroup, &format!("hugetlb.{size}.rsvd.{suffix}"), &value) {
            Err(CgroupError::Write { source, .. }) if source.kind() == io::ErrorKind::NotFound => {}
            written => written?,
        }
    }
    Ok(())
}

/// The sizes that the kernel has a limit for, as it names them.
fn sizes(files: &dyn ControlFiles, cgroup: &Path, suffix: &str) -> Result<Vec<String>, CgroupError> {
    let read = files.files(cgroup);
    let names = read.map_err(|source| CgroupError::Read { path: cgroup.to_owned(), source })?;
    let size = |name: &String| {
        let size = name.strip_prefix("hugetlb.")?.strip_suffix(suffix)?.strip_suffix('.')?;
        (!size.contains('.')).then(|| size.to_owned())
    };
    Ok(names.iter().filter_map(size).collect())
}

/// A size as the kernel names it: `2MB`.
fn size_name(mut size: u64) -> String {
    let mut unit = 0;
    const UNITS: [&str; 6] = ["B", "KB", "MB", "GB", "TB", "PB"];
    while size >= 1024 && unit + 1 < UNITS.len() {
        size /= 1024;
        unit += 1;
    }
    format!("{size}{}", UNITS[unit])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_named_as_the_kernel_does() {
        for (size, name) in [(64 << 10, "64KB"), (2 << 20, "2MB"), (512 << 20, "512MB"), (1 << 30, "1GB")] {
            assert_eq!(size_name(size), name);
        }
    }
}
