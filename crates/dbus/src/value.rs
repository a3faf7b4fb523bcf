//! What messages are made of.

/// A value of one of D-Bus's types.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    Byte(u8),
    Bool(bool),
    Int16(i16),
    Uint16(u16),
    Int32(i32),
    Uint32(u32),
    Int64(i64),
    Uint64(u64),
    Double(f64),
    Text(String),
    ObjectPath(String),
    Signature(String),
    /// Which of the file descriptors that come with the message: a [`Body`](crate::Body) has them.
    Fd(u32),
    /// Bytes: an array, which is not taken apart.
    Bytes(Vec<u8>),
    /// An array of anything else, with the signature of one of its values.
    Array(String, Vec<Value>),
    Struct(Vec<Value>),
    /// A key and its value, which stand in arrays alone.
    Entry(Box<(Value, Value)>),
    Variant(Box<Value>),
}

impl Value {
    /// A variant with this in it.
    pub fn variant(value: impl Into<Value>) -> Value {
        Value::Variant(Box::new(value.into()))
    }

    /// An array of texts.
    pub fn texts(texts: impl IntoIterator<Item = impl Into<String>>) -> Value {
        Value::Array("s".into(), texts.into_iter().map(|text| Value::Text(text.into())).collect())
    }

    /// Pairs of a name and a variant, as systemd takes properties: `a(sv)`.
    pub fn properties<N: Into<String>>(properties: impl IntoIterator<Item = (N, Value)>) -> Value {
        let pair = |(name, value): (N, Value)| {
            Value::Struct(vec![Value::Text(name.into()), Value::Variant(Box::new(value))])
        };
        Value::Array("(sv)".into(), properties.into_iter().map(pair).collect())
    }

    /// A text, an object's path or a signature.
    pub fn as_text(&self) -> Option<&str> {
        let (Value::Text(text) | Value::ObjectPath(text) | Value::Signature(text)) = self else {
            return None;
        };
        Some(text)
    }

    /// What a signature says of this value.
    pub fn signature(&self) -> String {
        let mut signature = String::new();
        self.sign(&mut signature);
        signature
    }

    fn sign(&self, signature: &mut String) {
        let code = match self {
            Value::Byte(_) => "y",
            Value::Bool(_) => "b",
            Value::Int16(_) => "n",
            Value::Uint16(_) => "q",
            Value::Int32(_) => "i",
            Value::Uint32(_) => "u",
            Value::Int64(_) => "x",
            Value::Uint64(_) => "t",
            Value::Double(_) => "d",
            Value::Text(_) => "s",
            Value::ObjectPath(_) => "o",
            Value::Signature(_) => "g",
            Value::Fd(_) => "h",
            Value::Bytes(_) => "ay",
            Value::Variant(_) => "v",
            Value::Array(of, _) => {
                signature.push('a');
                of
            }
            Value::Struct(fields) => {
                signature.push('(');
                fields.iter().for_each(|field| field.sign(signature));
                ")"
            }
            Value::Entry(entry) => {
                signature.push('{');
                entry.0.sign(signature);
                entry.1.sign(signature);
                "}"
            }
        };
        signature.push_str(code);
    }
}

impl From<&str> for Value {
    fn from(text: &str) -> Value {
        Value::Text(text.to_owned())
    }
}

impl From<String> for Value {
    fn from(text: String) -> Value {
        Value::Text(text)
    }
}

impl From<bool> for Value {
    fn from(value: bool) -> Value {
        Value::Bool(value)
    }
}

impl From<i32> for Value {
    fn from(value: i32) -> Value {
        Value::Int32(value)
    }
}

impl From<u32> for Value {
    fn from(value: u32) -> Value {
        Value::Uint32(value)
    }
}

impl From<u64> for Value {
    fn from(value: u64) -> Value {
        Value::Uint64(value)
    }
}
