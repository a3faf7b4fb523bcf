//! Loop devices: a file, or another device, once more as a device.
//!
//! What is attached is read from the kernel's own files; attaching and detaching is the work of the machine's `losetup`,
//! as upstream has it.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

/// Where the kernel tells of block devices.
const SYS_BLOCK: &str = "/sys/block";

/// The loop device over a file, which is made if there is none.
pub fn attach(file: &Path) -> io::Result<PathBuf> {
    if let Some(device) = attached(file)? {
        return Ok(device);
    }
    losetup(&["-f".as_ref(), file.as_os_str()])?;
    attached(file)?.ok_or_else(|| io::Error::other(format!("{} has no loop device", file.display())))
}

/// The loop device over a file, if there is one. The file need not be there any more.
pub fn attached(file: &Path) -> io::Result<Option<PathBuf>> {
    // Its folder may be behind a link, and the kernel tells the path without.
    let resolved = crate::mounts::resolved(file).unwrap_or_else(|_| file.to_owned());
    for entry in fs::read_dir(SYS_BLOCK)? {
        let name = entry?.file_name();
        if !name.as_bytes().starts_with(b"loop") {
            continue;
        }
        // Most have no file behind them.
        let Ok(told) = fs::read(Path::new(SYS_BLOCK).join(&name).join("loop/backing_file")) else { continue };
        let told = backing_file(told);
        if told == file || told == resolved {
            return Ok(Some(Path::new("/dev").join(name)));
        }
    }
    Ok(None)
}

/// Takes the loop device over a file away. It is no error if there is none. Whoever looks at all devices at that moment
/// holds it for that long: it goes when they are done, which is waited for, and cannot be told to a second time.
#[expect(
    clippy::disallowed_methods,
    reason = "who works on devices has a thread for it, and the kernel tells nobody"
)]
pub fn detach(file: &Path) -> io::Result<()> {
    const LOOKS: usize = 200;
    const PAUSE: Duration = Duration::from_millis(5);
    let mut detached = Ok(());
    for look in 0..LOOKS {
        let Some(device) = attached(file)? else { return Ok(()) };
        if look > 0 {
            std::thread::sleep(PAUSE);
        }
        detached = losetup(&["-d".as_ref(), device.as_os_str()]);
    }
    detached.and_then(|()| match attached(file)? {
        None => Ok(()),
        Some(_) => Err(io::ErrorKind::ResourceBusy.into()),
    })
}

/// The path in what the kernel tells: with a line's end, and with a word if the file is gone.
fn backing_file(mut told: Vec<u8>) -> PathBuf {
    for end in [&b"\n"[..], b" (deleted)"] {
        if told.ends_with(end) {
            told.truncate(told.len() - end.len());
        }
    }
    std::ffi::OsString::from_vec(told).into()
}

fn losetup(arguments: &[&OsStr]) -> io::Result<()> {
    let done = Command::new("losetup").args(arguments).stdin(Stdio::null()).output()?;
    if done.status.success() {
        return Ok(());
    }
    let (words, why) = (arguments.join(OsStr::new(" ")), String::from_utf8_lossy(&done.stderr));
    Err(io::Error::other(format!("losetup {} failed: {}", words.display(), why.trim())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_has_one_loop_device_until_it_is_detached() {
        let place = tempfile::tempdir().unwrap();
        let file = place.path().join("with a space");
        fs::File::create(&file).unwrap().set_len(1 << 20).unwrap();
        assert_eq!(attached(&file).unwrap(), None);
        let device = attach(&file).unwrap();
        assert_eq!(attach(&file).unwrap(), device);
        assert_eq!(attached(&file).unwrap(), Some(device.clone()));
        fs::remove_file(&file).unwrap();
        assert_eq!(attached(&file).unwrap(), Some(device));
        detach(&file).unwrap();
        assert_eq!(attached(&file).unwrap(), None);
        detach(&file).unwrap();
        let error = attach(&file).unwrap_err().to_string();
        assert!(error.starts_with(&format!("losetup -f {} failed: ", file.display())), "{error}");
    }

    #[test]
    fn the_kernels_word_for_a_removed_file_is_not_part_of_its_path() {
        for told in ["/a b\n", "/a b (deleted)\n", "/a b"] {
            assert_eq!(backing_file(told.into()), Path::new("/a b"));
        }
    }
}
