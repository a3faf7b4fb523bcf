//! Streams of events and of lists in pieces.

use futures_util::stream::{self, BoxStream, StreamExt as _};
use tokio::sync::broadcast::{self, error::RecvError};
use tonic::Status;

use super::gate::unavailable;
use super::simulator::Simulator;

/// How many things one piece of a list holds.
const PIECE: usize = 500;

/// What a streaming call answers with.
pub(crate) type Answers<T> = BoxStream<'static, Result<T, Status>>;

impl Simulator {
    /// Events as they come, until the runtime dies or the reader is too slow. The stream does not keep the simulator
    /// alive.
    pub(crate) fn stream_of<T, Answer>(
        &self,
        events: broadcast::Receiver<T>,
        answer: impl Fn(T) -> Option<Answer> + Send + Sync + 'static,
    ) -> Answers<Answer>
    where
        T: Clone + Send + 'static,
        Answer: Send + 'static,
    {
        let state = Some((events, self.deaths(), self.endings()));
        let received = stream::unfold(state, |state| async {
            let (mut events, mut deaths, mut endings) = state?;
            let problem = tokio::select! {
                biased;
                () = deaths.changed() => unavailable(),
                () = endings.changed() => unavailable(),
                event = events.recv() => match event {
                    Ok(event) => return Some((Ok(event), Some((events, deaths, endings)))),
                    Err(RecvError::Closed) => return None,
                    Err(RecvError::Lagged(lost)) => {
                        Status::resource_exhausted(format!("the reader is too slow: {lost} events were lost"))
                    }
                },
            };
            Some((Err(problem), None))
        });
        received
            .filter_map(move |event| {
                let answered = match event {
                    Ok(event) => answer(event).map(Ok),
                    Err(problem) => Some(Err(problem)),
                };
                async { answered }
            })
            .boxed()
    }
}

/// A list in pieces.
pub(crate) fn in_pieces<Item, Answer>(
    items: Vec<Item>,
    answer: impl Fn(Vec<Item>) -> Answer + Send + 'static,
) -> Answers<Answer>
where
    Item: Send + 'static,
    Answer: Send + 'static,
{
    let mut items = items.into_iter();
    let mut pieces = Vec::new();
    loop {
        let piece: Vec<Item> = items.by_ref().take(PIECE).collect();
        if piece.is_empty() {
            break;
        }
        pieces.push(Ok(answer(piece)));
    }
    stream::iter(pieces).boxed()
}
