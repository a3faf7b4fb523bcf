//! The hash by which a running container is recognised as the one its pod asks for.

use std::fmt::{self, Write};

use crablet_api::core::Container;

use crate::translate::go_json_text;

/// The hash of a container as its annotation holds it: lower hex, no leading zeros. Of a container's fields only its
/// name and its image are hashed: whatever else can change in a running pod does not need a new container.
pub fn container_hash(container: &Container) -> String {
    format!("{:x}", container_hash_value(container))
}

/// The hash of a container as a number.
pub fn container_hash_value(container: &Container) -> u32 {
    let mut dump = ByteDump(Fnv32a::default());
    // What is hashed is not the JSON itself but how Go's debugger prints a slice of its bytes.
    dump.0.write("([]uint8)[");
    dump.open("{\"image\":");
    // Writing to a hash never fails.
    let _ = go_json_text(&mut dump, &container.image);
    let _ = dump.write_str(",\"name\":");
    let _ = go_json_text(&mut dump, &container.name);
    let _ = dump.write_str("}");
    dump.0.write("]");
    dump.0.0
}

/// Feeds the decimal numbers of bytes, with a space between them, to a hash.
struct ByteDump(Fnv32a);

impl ByteDump {
    /// The first bytes: what follows begins with a space.
    fn open(&mut self, text: &str) {
        for (index, byte) in text.bytes().enumerate() {
            if index > 0 {
                self.0.byte(b' ');
            }
            self.0.decimal(byte);
        }
    }
}

impl Write for ByteDump {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for byte in text.bytes() {
            self.0.byte(b' ');
            self.0.decimal(byte);
        }
        Ok(())
    }
}

struct Fnv32a(u32);

impl Default for Fnv32a {
    fn default() -> Fnv32a {
        Fnv32a(0x811c_9dc5)
    }
}

impl Fnv32a {
    fn write(&mut self, text: &str) {
        text.bytes().for_each(|byte| self.byte(byte));
    }

    fn byte(&mut self, byte: u8) {
        self.0 = (self.0 ^ u32::from(byte)).wrapping_mul(0x0100_0193);
    }

    fn decimal(&mut self, number: u8) {
        if number >= 100 {
            self.byte(b'0' + number / 100);
        }
        if number >= 10 {
            self.byte(b'0' + number / 10 % 10);
        }
        self.byte(b'0' + number % 10);
    }
}

#[cfg(test)]
mod tests {
    use crablet_api::testing::pod;

    use super::*;

    #[test]
    fn hashes_are_those_that_the_go_kubelet_wrote() {
        let facts: serde_json::Value =
            serde_json::from_str(include_str!("../tests/data/container-hash.json")).unwrap();
        let facts = facts.as_array().unwrap();
        assert!(facts.len() > 3);
        for fact in facts {
            let text = |field: &str| fact[field].as_str().unwrap();
            let container =
                Container { name: text("name").into(), image: text("image").into(), ..Container::default() };
            assert_eq!(container_hash(&container), text("annotation"), "{fact}");
            assert_eq!(u64::from(container_hash_value(&container)), fact["hash"].as_u64().unwrap());
        }
    }

    #[test]
    fn only_name_and_image_count() {
        let plain = pod("p").container("c", "busybox:1").build();
        let mut other = plain.clone();
        other.spec.containers[0].command = ["sleep".into()].into();
        assert_eq!(container_hash(&plain.spec.containers[0]), container_hash(&other.spec.containers[0]));
        other.spec.containers[0].image = "busybox:2".into();
        assert_ne!(container_hash(&plain.spec.containers[0]), container_hash(&other.spec.containers[0]));
    }
}
