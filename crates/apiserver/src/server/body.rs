//! Bodies of responses.

use std::pin::Pin;
use std::task::{Context, Poll};

use hyper::body::{Body as HttpBody, Bytes, Frame, Incoming, SizeHint};
use tokio::sync::OwnedSemaphorePermit;
use tokio::sync::mpsc;

/// How much of a document goes out at a time: more is not given away before the client has taken that.
const CHUNK: usize = 64 << 10;

pub(super) struct Body {
    content: Content,
    /// What it counts against for as long as it is there.
    _permit: Option<OwnedSemaphorePermit>,
}

enum Content {
    Document(Bytes),
    /// Chunks, as somebody makes them.
    Watch(mpsc::Receiver<Bytes>),
    /// What the node says.
    Node(Incoming),
}

impl Body {
    pub(super) fn empty() -> Body {
        Body { content: Content::Document(Bytes::new()), _permit: None }
    }

    pub(super) fn document(content: Vec<u8>, permit: Option<OwnedSemaphorePermit>) -> Body {
        Body { content: Content::Document(content.into()), _permit: permit }
    }

    pub(super) fn watch(chunks: mpsc::Receiver<Bytes>, permit: OwnedSemaphorePermit) -> Body {
        Body { content: Content::Watch(chunks), _permit: Some(permit) }
    }

    pub(super) fn node(incoming: Incoming, permit: OwnedSemaphorePermit) -> Body {
        Body { content: Content::Node(incoming), _permit: Some(permit) }
    }
}

impl HttpBody for Body {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        match &mut self.content {
            Content::Document(rest) if rest.is_empty() => Poll::Ready(None),
            Content::Document(rest) => {
                let chunk = rest.split_to(rest.len().min(CHUNK));
                Poll::Ready(Some(Ok(Frame::data(chunk))))
            }
            Content::Watch(chunks) => {
                chunks.poll_recv(context).map(|chunk| chunk.map(|chunk| Ok(Frame::data(chunk))))
            }
            Content::Node(incoming) => Pin::new(incoming).poll_frame(context),
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.content {
            Content::Document(rest) => rest.is_empty(),
            Content::Watch(_) => false,
            Content::Node(incoming) => incoming.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.content {
            Content::Document(rest) => SizeHint::with_exact(rest.len() as u64),
            Content::Watch(_) => SizeHint::default(),
            Content::Node(incoming) => incoming.size_hint(),
        }
    }
}
