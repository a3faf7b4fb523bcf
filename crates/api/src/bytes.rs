//! [`Bytes`]: binary data, base64 on the wire.

use std::{borrow::Cow, fmt, ops::Deref};

use base64::{Engine, engine::general_purpose::STANDARD};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// Binary data, which is base64 on the wire. Its `Debug` tells the length alone: this is what secrets are made of.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Bytes(pub Box<[u8]>);

impl Deref for Bytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0
    }
}

impl From<&[u8]> for Bytes {
    fn from(bytes: &[u8]) -> Bytes {
        Bytes(bytes.into())
    }
}

impl From<&str> for Bytes {
    fn from(text: &str) -> Bytes {
        Bytes(text.as_bytes().into())
    }
}

impl fmt::Debug for Bytes {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "<{} bytes>", self.0.len())
    }
}

impl Serialize for Bytes {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&STANDARD.encode(&self.0))
    }
}

impl<'de> Deserialize<'de> for Bytes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Bytes, D::Error> {
        deserializer.deserialize_str(BytesVisitor)
    }
}

struct BytesVisitor;

impl de::Visitor<'_> for BytesVisitor {
    type Value = Bytes;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("base64 text")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Bytes, E> {
        // Go reads past line breaks, and people wrap long values.
        let joined = match text.contains(['\r', '\n']) {
            true => Cow::Owned(text.replace(['\r', '\n'], "")),
            false => Cow::Borrowed(text),
        };
        // The decoder's own error shows a byte of what may be a secret.
        let bytes = STANDARD.decode(joined.as_bytes()).map_err(|_| E::custom("expected base64 text"))?;
        Ok(Bytes(bytes.into()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_base64_outside_and_unseen_in_debug() {
        let bytes: Bytes = serde_json::from_str(r#""czNj\r\ncjN0""#).unwrap();
        assert_eq!(&*bytes, b"s3cr3t");
        assert_eq!(format!("{bytes:?}"), "<6 bytes>");
        assert_eq!(serde_json::to_string(&bytes).unwrap(), r#""czNjcjN0""#);
        for json in [r#""czNjcjN""#, r#""a-_b""#, "[1]", "1"] {
            let error = serde_json::from_str::<Bytes>(json).unwrap_err().to_string();
            assert!(error.contains("base64 text") && !error.contains("czN"), "{error}");
        }
    }
}
