//! Container images made of files at hand: no registry is asked.

use std::collections::BTreeMap;
use std::env::consts::ARCH;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use serde_json::json;
use sha2::{Digest, Sha256};
use tar::{Builder, EntryType, Header};
use tempfile::NamedTempFile;

use crate::programs::find_program;
use crate::run::BASE;

/// The image of every pod's first process.
pub(crate) const PAUSE: &str = "crablet.test/pause:1";
const BUSYBOX: &str = "crablet.test/busybox:1";

/// The type of an image's manifest.
const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";

const PAUSE_SOURCE: &str = include_str!("pause.c");

/// An image with one layer, described by a test.
///
/// ```
/// # use crablet_testkit::Image;
/// let image = Image::new("example.test/greeter:1")
///     .file("/etc/greeting", "hello\n", 0o644)
///     .file("/bin/greet", "#!/bin/sh\ncat /etc/greeting\n", 0o755)
///     .entrypoint(["/bin/greet"])
///     .user("1000")
///     .env("LANG", "C");
/// ```
///
/// The same description always makes the same bytes, and so the same digests.
#[derive(Clone)]
pub struct Image {
    reference: String,
    entries: BTreeMap<PathBuf, Entry>,
    settings: serde_json::Map<String, serde_json::Value>,
    variables: Vec<String>,
}

#[derive(Clone)]
enum Entry {
    File { content: Vec<u8>, mode: u32 },
    Directory { mode: u32 },
    Link { target: PathBuf },
}

impl Image {
    /// An empty image. `reference` is its full name with host and tag, such as `example.test/name:tag`.
    pub fn new(reference: &str) -> Image {
        Image {
            reference: reference.to_owned(),
            entries: BTreeMap::new(),
            settings: serde_json::Map::new(),
            variables: Vec::new(),
        }
    }

    /// `crablet.test/pause:1`, the image of pod sandboxes: one static program that waits, reaps zombies, and ends on
    /// SIGTERM and SIGINT. Compiled with gcc once, then taken from a cache.
    pub fn pause() -> Result<Image> {
        Ok(Image::new(PAUSE).file("/pause", pause_program()?, 0o755).entrypoint(["/pause"]))
    }

    /// `crablet.test/busybox:1`: this machine's static busybox with all its applets in `/bin`, and a shell as command.
    pub fn busybox() -> Result<Image> {
        let busybox = find_program("busybox")?;
        let list = Command::new(&busybox).arg("--list").output()?;
        let list = String::from_utf8(list.stdout).context("busybox --list printed no text")?;
        let mut image = Image::new(BUSYBOX)
            .file("/bin/busybox", fs::read(&busybox)?, 0o755)
            .file(
                "/etc/passwd",
                "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/sh\n",
                0o644,
            )
            .file("/etc/group", "root:x:0:\nnogroup:x:65534:\n", 0o644)
            .directory("/root", 0o700)
            .directory("/tmp", 0o1777)
            .env("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")
            .cmd(["sh"]);
        for applet in list.lines().filter(|applet| *applet != "busybox") {
            image = image.link(format!("/bin/{applet}"), "busybox");
        }
        Ok(image)
    }

    /// The name under which it is imported.
    pub fn reference(&self) -> &str {
        &self.reference
    }

    /// The same image by another name.
    pub fn named(mut self, reference: &str) -> Image {
        self.reference = reference.to_owned();
        self
    }

    /// Adds a file.
    pub fn file(self, path: impl AsRef<Path>, content: impl Into<Vec<u8>>, mode: u32) -> Image {
        self.entry(path, Entry::File { content: content.into(), mode })
    }

    /// Adds a directory. Those above files are there anyhow, with mode 0755.
    pub fn directory(self, path: impl AsRef<Path>, mode: u32) -> Image {
        self.entry(path, Entry::Directory { mode })
    }

    /// Adds a symbolic link.
    pub fn link(self, path: impl AsRef<Path>, target: impl Into<PathBuf>) -> Image {
        self.entry(path, Entry::Link { target: target.into() })
    }

    /// The program to run, and its first arguments.
    pub fn entrypoint<Word: Into<String>>(self, words: impl IntoIterator<Item = Word>) -> Image {
        self.words("Entrypoint", words)
    }

    /// The arguments that follow the entrypoint, unless the container has its own.
    pub fn cmd<Word: Into<String>>(self, words: impl IntoIterator<Item = Word>) -> Image {
        self.words("Cmd", words)
    }

    /// The user to run as: a number or a name, and a group after a colon.
    pub fn user(self, user: &str) -> Image {
        self.setting("User", user)
    }

    /// The directory to run in.
    pub fn working_dir(self, path: &str) -> Image {
        self.setting("WorkingDir", path)
    }

    /// The signal that asks the program to stop, such as `SIGQUIT`.
    pub fn stop_signal(self, signal: &str) -> Image {
        self.setting("StopSignal", signal)
    }

    /// Adds an environment variable.
    pub fn env(mut self, name: &str, value: &str) -> Image {
        self.variables.push(format!("{name}={value}"));
        self
    }

    /// What a registry would serve of it: the digest of its manifest, and everything by digest, the manifest too.
    pub fn blobs(&self) -> Result<(String, BTreeMap<String, Vec<u8>>)> {
        let (manifest, configuration, layer) = self.parts()?;
        let by_digest = [&manifest, &configuration, &layer].map(|blob| (digest(blob), blob.clone()));
        Ok((digest(&manifest), BTreeMap::from(by_digest)))
    }

    /// The image as a tar file in OCI's image layout, for `ctr image import` and its like.
    pub fn archive(&self) -> Result<Vec<u8>> {
        let (manifest, configuration, layer) = self.parts()?;
        let mut listed = descriptor(MANIFEST, &manifest);
        listed["annotations"] = json!({ "io.containerd.image.name": self.reference });
        let index = json!({ "schemaVersion": 2, "manifests": [listed] }).to_string();

        let mut archive = Builder::new(Vec::new());
        append_file(&mut archive, Path::new("oci-layout"), br#"{"imageLayoutVersion":"1.0.0"}"#, 0o644)?;
        append_file(&mut archive, Path::new("index.json"), index.as_bytes(), 0o644)?;
        for blob in [&manifest, &configuration, &layer] {
            append_file(
                &mut archive,
                &Path::new("blobs/sha256").join(hexadecimal_digest(blob)),
                blob,
                0o644,
            )?;
        }
        archive.into_inner().context("cannot write an image archive")
    }

    /// The manifest, the configuration and the layer.
    fn parts(&self) -> Result<(Vec<u8>, Vec<u8>, Vec<u8>)> {
        let layer = self.layer()?;
        let configuration = self.configuration(&layer).to_string().into_bytes();
        let manifest = json!({
            "schemaVersion": 2,
            "mediaType": MANIFEST,
            "config": descriptor("application/vnd.oci.image.config.v1+json", &configuration),
            "layers": [descriptor("application/vnd.oci.image.layer.v1.tar", &layer)],
        });
        Ok((manifest.to_string().into_bytes(), configuration, layer))
    }

    fn entry(mut self, path: impl AsRef<Path>, entry: Entry) -> Image {
        // Paths in a layer are relative to the root.
        let path = path.as_ref();
        let path = path.strip_prefix("/").unwrap_or(path);
        for parent in path.ancestors().skip(1).filter(|parent| *parent != Path::new("")) {
            self.entries.entry(parent.to_owned()).or_insert(Entry::Directory { mode: 0o755 });
        }
        self.entries.insert(path.to_owned(), entry);
        self
    }

    fn words<Word: Into<String>>(self, key: &str, words: impl IntoIterator<Item = Word>) -> Image {
        let words: Vec<String> = words.into_iter().map(Into::into).collect();
        self.setting(key, words)
    }

    fn setting(mut self, key: &str, value: impl Into<serde_json::Value>) -> Image {
        self.settings.insert(key.to_owned(), value.into());
        self
    }

    fn layer(&self) -> Result<Vec<u8>> {
        let mut layer = Builder::new(Vec::new());
        for (path, entry) in &self.entries {
            match entry {
                Entry::File { content, mode } => append_file(&mut layer, path, content, *mode)?,
                Entry::Directory { mode } => {
                    layer.append_data(&mut header(EntryType::Directory, 0, *mode), path, std::io::empty())?;
                }
                Entry::Link { target } => {
                    layer.append_link(&mut header(EntryType::Symlink, 0, 0o777), path, target)?;
                }
            }
        }
        layer.into_inner().context("cannot write an image layer")
    }

    fn configuration(&self, layer: &[u8]) -> serde_json::Value {
        let architecture = match ARCH {
            "x86_64" => "amd64",
            "aarch64" => "arm64",
            other => other,
        };
        let mut settings = self.settings.clone();
        settings.insert("Env".to_owned(), json!(self.variables));
        json!({
            "architecture": architecture,
            "os": "linux",
            "config": settings,
            "rootfs": { "type": "layers", "diff_ids": [digest(layer)] },
        })
    }
}

fn append_file(archive: &mut Builder<Vec<u8>>, path: &Path, content: &[u8], mode: u32) -> Result<()> {
    archive
        .append_data(&mut header(EntryType::Regular, content.len() as u64, mode), path, content)
        .with_context(|| format!("cannot add {} to an archive", path.display()))
}

fn header(kind: EntryType, size: u64, mode: u32) -> Header {
    let mut header = Header::new_gnu();
    header.set_entry_type(kind);
    header.set_size(size);
    header.set_mode(mode);
    header.set_uid(0);
    header.set_gid(0);
    header.set_mtime(0);
    header
}

fn descriptor(media_type: &str, content: &[u8]) -> serde_json::Value {
    json!({ "mediaType": media_type, "digest": digest(content), "size": content.len() })
}

fn digest(content: &[u8]) -> String {
    format!("sha256:{}", hexadecimal_digest(content))
}

fn hexadecimal_digest(content: &[u8]) -> String {
    Sha256::digest(content).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The compiled pause program, from the cache when the source is the one it was compiled from.
fn pause_program() -> Result<Vec<u8>> {
    fs::create_dir_all(BASE).with_context(|| format!("cannot create {BASE}"))?;
    let cached = Path::new(BASE).join(format!("pause-{}", hexadecimal_digest(PAUSE_SOURCE.as_bytes())));
    if let Ok(program) = fs::read(&cached) {
        return Ok(program);
    }
    let mut source = NamedTempFile::with_suffix_in(".c", BASE)?;
    source.write_all(PAUSE_SOURCE.as_bytes())?;
    let program = NamedTempFile::new_in(BASE)?;
    let compiled = Command::new(find_program("gcc")?)
        .args(["-static", "-Os", "-s", "-o"])
        .args([program.path(), source.path()])
        .output()?;
    if !compiled.status.success() {
        bail!("gcc cannot compile the pause program: {}", String::from_utf8_lossy(&compiled.stderr));
    }
    let content = fs::read(program.path())?;
    // Two processes may compile it at once; a rename never shows half a file.
    program.persist(&cached).context("cannot keep the compiled pause program")?;
    Ok(content)
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use tar::Archive;

    use super::*;

    #[test]
    fn an_archive_holds_what_the_description_says() {
        let image = Image::new("example.test/a:1")
            .file("/opt/tool/run", "#!", 0o755)
            .link("/bin/run", "/opt/tool/run")
            .entrypoint(["/bin/run"])
            .cmd(["--fast"])
            .user("1000:2000")
            .env("A", "1")
            .env("B", "2")
            .working_dir("/opt")
            .stop_signal("SIGQUIT");
        let files = unpack(&image.archive().unwrap());
        let index = parse(&files["index.json"]);
        assert_eq!(index["manifests"][0]["annotations"]["io.containerd.image.name"], "example.test/a:1");
        let manifest = parse(blob(&files, &index["manifests"][0]["digest"]));
        let layer = blob(&files, &manifest["layers"][0]["digest"]);
        let configuration = parse(blob(&files, &manifest["config"]["digest"]));
        assert_eq!(configuration["rootfs"]["diff_ids"], json!([digest(layer)]));
        assert_eq!(
            configuration["config"],
            json!({
                "Entrypoint": ["/bin/run"],
                "Cmd": ["--fast"],
                "User": "1000:2000",
                "Env": ["A=1", "B=2"],
                "WorkingDir": "/opt",
                "StopSignal": "SIGQUIT",
            })
        );
        let names: Vec<String> = unpack(layer).into_keys().collect();
        assert_eq!(names, ["bin", "bin/run", "opt", "opt/tool", "opt/tool/run"]);
    }

    #[test]
    fn the_same_description_makes_the_same_bytes() {
        let image = || {
            Image::new("example.test/a:1").file("/b", "b", 0o644).file("/a", "a", 0o644).archive().unwrap()
        };
        assert_eq!(image(), image());
    }

    #[test]
    fn a_directory_described_after_its_file_keeps_its_mode() {
        let image = Image::new("example.test/a:1").file("/tmp/x", "", 0o644).directory("/tmp", 0o1777);
        let layer = image.layer().unwrap();
        let mut archive = Archive::new(layer.as_slice());
        let first = archive.entries().unwrap().next().unwrap().unwrap();
        assert_eq!(
            (first.path().unwrap().as_ref(), first.header().mode().unwrap()),
            (Path::new("tmp"), 0o1777)
        );
    }

    fn unpack(archive: &[u8]) -> BTreeMap<String, Vec<u8>> {
        let mut files = BTreeMap::new();
        for entry in Archive::new(archive).entries().unwrap() {
            let mut entry = entry.unwrap();
            let path = entry.path().unwrap().to_str().unwrap().trim_end_matches('/').to_owned();
            let mut content = Vec::new();
            entry.read_to_end(&mut content).unwrap();
            files.insert(path, content);
        }
        files
    }

    fn blob<'a>(files: &'a BTreeMap<String, Vec<u8>>, digest: &serde_json::Value) -> &'a [u8] {
        &files[&format!("blobs/{}", digest.as_str().unwrap().replace(':', "/"))]
    }

    fn parse(content: &[u8]) -> serde_json::Value {
        serde_json::from_slice(content).unwrap()
    }
}
