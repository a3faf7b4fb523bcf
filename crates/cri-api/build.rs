//! Compiles the protocol's statements in `proto/` with a compiler in Rust: no `protoc` is needed.

use std::env;
use std::error::Error;
use std::fs;
use std::path::PathBuf;

use prost::Message as _;

/// Types whose `Debug` is written by hand, because they can hold a secret.
const REDACTED: &[&str] = &[".runtime.v1.AuthConfig", ".runtime.v1.KeyValue"];

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed=proto");
    let files = protox::compile(
        [
            "runtime/service.proto",
            "containerd/services.proto",
            "containerd/events.proto",
            "containerd/tasks.proto",
        ],
        ["proto"],
    )?;
    let out = PathBuf::from(env::var_os("OUT_DIR").ok_or("OUT_DIR is not set")?);
    fs::write(out.join("descriptors.bin"), files.encode_to_vec())?;
    tonic_prost_build::configure().btree_map(".").skip_debug(REDACTED.iter().copied()).compile_fds(files)?;
    Ok(())
}
