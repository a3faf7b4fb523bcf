//! Values as bytes, in the order of bytes of the one who wrote them. We write in the machine's own.

use crate::value::Value;

/// How deep values may be nested: the protocol's own limits allow for no more.
const DEEPEST: usize = 64;
/// How long a signature may be.
const LONGEST_SIGNATURE: usize = 255;

/// Why bytes are no message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    #[error("it ends too early")]
    Short,
    #[error("a text is not UTF-8, or does not end as it should")]
    Text,
    #[error("a signature names no types")]
    Signature,
    #[error("a truth value is neither 0 nor 1")]
    Bool,
    #[error("it is nested too deeply")]
    Deep,
    #[error("something in it is too long")]
    Long,
    #[error("its header lacks a field, or has one of a wrong type")]
    Header,
}

/// The order of bytes in a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Endian {
    Little,
    Big,
}

impl Endian {
    pub const NATIVE: Endian = if cfg!(target_endian = "big") { Endian::Big } else { Endian::Little };
}

/// Bytes being written. Places count from their beginning.
#[derive(Debug, Default)]
pub struct Writer(pub Vec<u8>);

impl Writer {
    pub fn align(&mut self, to: usize) {
        self.0.resize(self.0.len().next_multiple_of(to), 0);
    }

    fn put(&mut self, bytes: &[u8]) {
        self.align(bytes.len());
        self.0.extend_from_slice(bytes);
    }

    pub fn length(&mut self, length: usize) {
        self.put(&u32::try_from(length).unwrap_or(u32::MAX).to_ne_bytes());
    }

    fn text(&mut self, text: &str) {
        self.length(text.len());
        self.0.extend_from_slice(text.as_bytes());
        self.0.push(0);
    }

    pub fn value(&mut self, value: &Value) {
        match value {
            Value::Byte(byte) => self.0.push(*byte),
            Value::Bool(value) => self.put(&u32::from(*value).to_ne_bytes()),
            Value::Int16(number) => self.put(&number.to_ne_bytes()),
            Value::Uint16(number) => self.put(&number.to_ne_bytes()),
            Value::Int32(number) => self.put(&number.to_ne_bytes()),
            Value::Uint32(number) | Value::Fd(number) => self.put(&number.to_ne_bytes()),
            Value::Int64(number) => self.put(&number.to_ne_bytes()),
            Value::Uint64(number) => self.put(&number.to_ne_bytes()),
            Value::Double(number) => self.put(&number.to_ne_bytes()),
            Value::Text(text) | Value::ObjectPath(text) => self.text(text),
            Value::Signature(signature) => self.signature(signature),
            Value::Bytes(bytes) => {
                self.length(bytes.len());
                self.0.extend_from_slice(bytes);
            }
            Value::Array(of, values) => self.array(of, values),
            Value::Struct(fields) => {
                self.align(8);
                fields.iter().for_each(|field| self.value(field));
            }
            Value::Entry(entry) => {
                self.align(8);
                self.value(&entry.0);
                self.value(&entry.1);
            }
            Value::Variant(value) => {
                self.signature(&value.signature());
                self.value(value);
            }
        }
    }

    /// A signature that is longer than it may be is refused by who gets it: its length says something else.
    fn signature(&mut self, signature: &str) {
        self.0.push(u8::try_from(signature.len()).unwrap_or(u8::MAX));
        self.0.extend_from_slice(signature.as_bytes());
        self.0.push(0);
    }

    fn array(&mut self, of: &str, values: &[Value]) {
        self.length(0);
        let length_ends = self.0.len();
        // What comes before the first value counts for its place alone.
        self.align(alignment(of.as_bytes().first().copied().unwrap_or_default()));
        let begins = self.0.len();
        values.iter().for_each(|value| self.value(value));
        let length = u32::try_from(self.0.len() - begins).unwrap_or(u32::MAX);
        self.0[length_ends - 4..length_ends].copy_from_slice(&length.to_ne_bytes());
    }
}

/// At multiples of what a type stands.
fn alignment(code: u8) -> usize {
    match code {
        b'n' | b'q' => 2,
        b'b' | b'i' | b'u' | b'h' | b'a' | b's' | b'o' => 4,
        b'x' | b't' | b'd' | b'(' | b'{' => 8,
        _ => 1,
    }
}

/// Bytes being read. Places count from their beginning.
pub struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
    endian: Endian,
}

impl<'a> Reader<'a> {
    pub fn new(bytes: &'a [u8], endian: Endian) -> Reader<'a> {
        Reader { bytes, at: 0, endian }
    }

    pub fn place(&self) -> usize {
        self.at
    }

    pub fn align(&mut self, to: usize) -> Result<(), Malformed> {
        let next = self.at.next_multiple_of(to);
        if next > self.bytes.len() {
            return Err(Malformed::Short);
        }
        self.at = next;
        Ok(())
    }

    fn take(&mut self, count: usize) -> Result<&'a [u8], Malformed> {
        let end = self.at.checked_add(count).ok_or(Malformed::Short)?;
        let taken = self.bytes.get(self.at..end).ok_or(Malformed::Short)?;
        self.at = end;
        Ok(taken)
    }

    fn number<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        self.align(N)?;
        let mut bytes: [u8; N] = self.take(N)?.try_into().map_err(|_| Malformed::Short)?;
        if self.endian != Endian::NATIVE {
            bytes.reverse();
        }
        Ok(bytes)
    }

    pub fn u32(&mut self) -> Result<u32, Malformed> {
        self.number().map(u32::from_ne_bytes)
    }

    fn text(&mut self, length: usize) -> Result<String, Malformed> {
        let text = self.take(length)?;
        if self.take(1)? != [0] || text.contains(&0) {
            return Err(Malformed::Text);
        }
        String::from_utf8(text.to_vec()).map_err(|_| Malformed::Text)
    }

    fn signature(&mut self) -> Result<String, Malformed> {
        let length = usize::from(self.take(1)?[0]);
        self.text(length)
    }

    fn length(&mut self) -> Result<usize, Malformed> {
        usize::try_from(self.u32()?).map_err(|_| Malformed::Short)
    }

    /// The values that a signature names, one after the other.
    pub fn values(&mut self, signature: &str) -> Result<Vec<Value>, Malformed> {
        self.sequence(signature.as_bytes(), 0)
    }

    fn sequence(&mut self, mut signature: &[u8], depth: usize) -> Result<Vec<Value>, Malformed> {
        let mut values = Vec::new();
        while !signature.is_empty() {
            let (one, rest) = first_type(signature)?;
            values.push(self.value(one, depth)?);
            signature = rest;
        }
        Ok(values)
    }

    fn value(&mut self, signature: &[u8], depth: usize) -> Result<Value, Malformed> {
        if depth > DEEPEST {
            return Err(Malformed::Deep);
        }
        Ok(match signature {
            b"y" => Value::Byte(self.take(1)?[0]),
            b"b" => match self.u32()? {
                0 => Value::Bool(false),
                1 => Value::Bool(true),
                _ => return Err(Malformed::Bool),
            },
            b"n" => Value::Int16(self.number().map(i16::from_ne_bytes)?),
            b"q" => Value::Uint16(self.number().map(u16::from_ne_bytes)?),
            b"i" => Value::Int32(self.number().map(i32::from_ne_bytes)?),
            b"u" => Value::Uint32(self.u32()?),
            b"h" => Value::Fd(self.u32()?),
            b"x" => Value::Int64(self.number().map(i64::from_ne_bytes)?),
            b"t" => Value::Uint64(self.number().map(u64::from_ne_bytes)?),
            b"d" => Value::Double(self.number().map(f64::from_ne_bytes)?),
            b"s" | b"o" => {
                let length = self.length()?;
                let text = self.text(length)?;
                if signature == b"s" { Value::Text(text) } else { Value::ObjectPath(text) }
            }
            b"g" => Value::Signature(self.signature()?),
            b"v" => {
                let signature = self.signature()?;
                let (one, rest) = first_type(signature.as_bytes())?;
                if !rest.is_empty() {
                    return Err(Malformed::Signature);
                }
                Value::Variant(Box::new(self.value(one, depth + 1)?))
            }
            b"ay" => {
                let length = self.length()?;
                Value::Bytes(self.take(length)?.to_vec())
            }
            [b'a', of @ ..] => self.array(of, depth)?,
            [b'(', fields @ .., b')'] => {
                self.align(8)?;
                Value::Struct(self.sequence(fields, depth + 1)?)
            }
            [b'{', entry @ .., b'}'] => {
                self.align(8)?;
                let (key, value) = first_type(entry)?;
                let key = self.value(key, depth + 1)?;
                Value::Entry(Box::new((key, self.value(value, depth + 1)?)))
            }
            _ => return Err(Malformed::Signature),
        })
    }

    fn array(&mut self, of: &[u8], depth: usize) -> Result<Value, Malformed> {
        let length = self.length()?;
        self.align(alignment(of.first().copied().unwrap_or_default()))?;
        let end =
            self.at.checked_add(length).filter(|end| *end <= self.bytes.len()).ok_or(Malformed::Short)?;
        let mut values = Vec::new();
        while self.at < end {
            values.push(self.value(of, depth + 1)?);
        }
        if self.at != end {
            return Err(Malformed::Long);
        }
        // A signature is made of letters and brackets.
        let of = String::from_utf8(of.to_vec()).map_err(|_| Malformed::Signature)?;
        Ok(Value::Array(of, values))
    }
}

/// The first complete type of a signature, and what follows it.
fn first_type(signature: &[u8]) -> Result<(&[u8], &[u8]), Malformed> {
    if signature.len() > LONGEST_SIGNATURE {
        return Err(Malformed::Long);
    }
    let length = type_length(signature, false, 0)?;
    Ok(signature.split_at(length))
}

fn type_length(signature: &[u8], in_array: bool, depth: usize) -> Result<usize, Malformed> {
    if depth > DEEPEST {
        return Err(Malformed::Deep);
    }
    match signature.first() {
        Some(
            b'y' | b'b' | b'n' | b'q' | b'i' | b'u' | b'x' | b't' | b'd' | b's' | b'o' | b'g' | b'h' | b'v',
        ) => Ok(1),
        Some(b'a') => Ok(1 + type_length(&signature[1..], true, depth + 1)?),
        Some(b'(') => {
            let (length, count) = fields(&signature[1..], b')', depth + 1)?;
            if count == 0 { Err(Malformed::Signature) } else { Ok(length + 2) }
        }
        Some(b'{') if in_array => {
            let (length, count) = fields(&signature[1..], b'}', depth + 1)?;
            if count == 2 { Ok(length + 2) } else { Err(Malformed::Signature) }
        }
        _ => Err(Malformed::Signature),
    }
}

/// How long the types up to a bracket are, and how many.
fn fields(signature: &[u8], end: u8, depth: usize) -> Result<(usize, usize), Malformed> {
    let (mut length, mut count) = (0, 0);
    while signature.get(length) != Some(&end) {
        length += type_length(signature.get(length..).unwrap_or_default(), false, depth)?;
        count += 1;
    }
    Ok((length, count))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn value() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            any::<u8>().prop_map(Value::Byte),
            any::<bool>().prop_map(Value::Bool),
            any::<i16>().prop_map(Value::Int16),
            any::<u32>().prop_map(Value::Uint32),
            any::<i64>().prop_map(Value::Int64),
            any::<u64>().prop_map(Value::Uint64),
            "[a-zä]{0,9}".prop_map(Value::Text),
            Just(Value::ObjectPath("/org/freedesktop".into())),
            Just(Value::Signature("a{sv}".into())),
            proptest::collection::vec(any::<u8>(), 0..9).prop_map(Value::Bytes),
        ];
        leaf.prop_recursive(4, 24, 4, |inner| {
            prop_oneof![
                inner.clone().prop_map(|value| Value::Variant(Box::new(value))),
                proptest::collection::vec(inner.clone(), 1..4).prop_map(Value::Struct),
                // All values of an array have one type.
                (inner.clone(), 0..4_usize).prop_map(|(value, count)| match value.signature() {
                    bytes if bytes == "y" => Value::Bytes(vec![7; count]),
                    of => Value::Array(of, vec![value; count]),
                }),
                inner.prop_map(|value| {
                    let entry = Value::Entry(Box::new((Value::Text("key".into()), value)));
                    Value::Array(entry.signature(), vec![entry])
                }),
            ]
        })
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_again(values in proptest::collection::vec(value(), 0..5)) {
            let signature: String = values.iter().map(Value::signature).collect();
            prop_assume!(signature.len() <= LONGEST_SIGNATURE);
            let mut writer = Writer::default();
            values.iter().for_each(|value| writer.value(value));
            let mut reader = Reader::new(&writer.0, Endian::NATIVE);
            prop_assert_eq!(reader.values(&signature), Ok(values));
            prop_assert_eq!(reader.place(), writer.0.len());
        }

        #[test]
        fn nothing_that_is_read_can_do_harm(
            bytes in proptest::collection::vec(any::<u8>(), 0..200),
            signature in "[ybnqiuxtdsogva(){}h]{0,12}",
        ) {
            let _ = Reader::new(&bytes, Endian::Little).values(&signature);
            let _ = Reader::new(&bytes, Endian::Big).values(&signature);
        }
    }

    #[test]
    fn bytes_stand_where_the_specification_puts_them() {
        let mut writer = Writer::default();
        writer.value(&Value::Byte(1));
        writer.value(&Value::properties([("Delegate", Value::Bool(true))]));
        let native = |number: u32| number.to_ne_bytes().to_vec();
        let expected =
            [vec![1, 0, 0, 0], native(20), native(8), b"Delegate\0".to_vec(), b"\x01b\0".to_vec(), native(1)];
        assert_eq!(writer.0, expected.concat());
    }

    #[test]
    fn the_other_order_of_bytes_is_read_too() {
        let bytes = [0, 0, 0, 1, 0, 0, 0, 2, b'h', b'i', 0];
        let values = Reader::new(&bytes, Endian::Big).values("us").unwrap();
        assert_eq!(values, [Value::Uint32(1), Value::Text("hi".into())]);
    }

    #[test]
    fn what_is_not_as_it_should_be_is_refused() {
        for (signature, bytes, expected) in [
            ("u", &[1, 0, 0][..], Malformed::Short),
            ("b", &[2, 0, 0, 0], Malformed::Bool),
            ("s", &[1, 0, 0, 0, b'x', b'y'], Malformed::Text),
            ("s", &[1, 0, 0, 0, 0, 0], Malformed::Text),
            ("g", &[1, 0xFF, 0], Malformed::Text),
            ("a", &[], Malformed::Signature),
            ("()", &[], Malformed::Signature),
            ("{sv}", &[], Malformed::Signature),
            ("(s", &[], Malformed::Signature),
            ("a{s}", &[], Malformed::Signature),
            ("z", &[], Malformed::Signature),
            ("v", &[2, b'u', b'u', 0], Malformed::Signature),
            ("au", &[5, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0], Malformed::Long),
            ("au", &[255, 255, 255, 255], Malformed::Short),
        ] {
            let found = Reader::new(bytes, Endian::Little).values(signature);
            assert_eq!(found, Err(expected), "{signature} {bytes:?}");
        }
        let deep = "a".repeat(100) + "y";
        assert_eq!(Reader::new(&[], Endian::Little).values(&deep), Err(Malformed::Deep));
        let mut nested = [1, b'v', 0].repeat(100);
        nested.extend([1, b'y', 0, 1]);
        assert_eq!(Reader::new(&nested, Endian::Little).values("v"), Err(Malformed::Deep));
    }
}
