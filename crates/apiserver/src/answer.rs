//! What a request is answered with.

use jiff::Timestamp;
use serde_json::Value;

use crate::status::Refusal;
use crate::usage::UsageQuery;
use crate::watch::Watch;

#[derive(Debug)]
pub enum Answer {
    /// A document, at once.
    Document(Document),
    /// Changes, as they come.
    Watch(Box<Watch>),
    /// What only the node can answer: the request goes on to it as it is.
    Proxy(Proxy),
    /// What nodes have to be asked about first.
    Usage(UsageQuery),
}

#[derive(Debug, Default)]
pub struct Document {
    pub code: u16,
    pub content_type: &'static str,
    pub body: Vec<u8>,
    /// `Warning` headers, as `kubectl` prints them.
    pub warnings: Vec<String>,
    pub retry_after: Option<u32>,
    /// Where it is instead.
    pub location: Option<String>,
    pub keeping: Option<Keeping>,
    /// The version that must be on disk before this is said.
    pub revision: u64,
}

/// How long a client may keep a document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Keeping {
    /// By which the client asks whether what it has is still what there is.
    pub etag: String,
    /// `Cache-Control`, where it is not the usual.
    pub control: Option<&'static str>,
    pub expires: Option<Timestamp>,
}

/// Where on which node a request goes on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Proxy {
    pub node: String,
    /// With the query.
    pub path: String,
    /// Whether it is a log, which the node's refusals are put into our words for.
    pub is_log: bool,
}

pub const JSON: &str = "application/json";

impl Document {
    pub fn json(code: u16, body: &Value) -> Document {
        Document::encoded(code, serde_json::to_vec(body).unwrap_or_default())
    }

    /// What is JSON already.
    pub fn encoded(code: u16, body: Vec<u8>) -> Document {
        Document { code, content_type: JSON, body, ..Document::default() }
    }

    pub fn text(code: u16, body: &str) -> Document {
        Document {
            code,
            content_type: "text/plain; charset=utf-8",
            body: body.as_bytes().to_vec(),
            ..Document::default()
        }
    }
}

impl From<Document> for Answer {
    fn from(document: Document) -> Answer {
        Answer::Document(document)
    }
}

impl From<Refusal> for Document {
    fn from(refusal: Refusal) -> Document {
        let mut document = Document::json(refusal.code, &refusal.body());
        document.retry_after = refusal.retry_after;
        document
    }
}

impl From<Refusal> for Answer {
    fn from(refusal: Refusal) -> Answer {
        Answer::Document(refusal.into())
    }
}
