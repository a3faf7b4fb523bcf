//! Answers that are remembered for a while. Many who ask the same at once are one question.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::{BoxFuture, Shared};
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout};

use super::error::ReviewError;

/// How many answers are remembered.
const MOST: usize = 4096;
/// How many questions are under way. While a server does not answer, strangers could ask without end.
const MOST_ASKED: usize = 512;
/// How long an answer is waited for, with all that is tried again.
const ANSWERED_WITHIN: Duration = Duration::from_secs(30);

/// Answers to questions of a kind. An error is told to those who wait, and not remembered.
pub(crate) struct Reviews<K, A> {
    entries: Mutex<BTreeMap<K, Entry<A>>>,
    places: Arc<Semaphore>,
}

type Answer<A> = Shared<BoxFuture<'static, Result<A, ReviewError>>>;

enum Entry<A> {
    Asked(Answer<A>),
    Known { answer: A, until: Instant },
}

impl<K: Ord + Clone, A: Clone + Send + Sync + 'static> Reviews<K, A> {
    pub(crate) fn new() -> Reviews<K, A> {
        Reviews { entries: Mutex::default(), places: Arc::new(Semaphore::new(MOST_ASKED)) }
    }

    /// The answer that is known, or the one that `ask` brings, which is remembered for as long as `lasts` says.
    pub(crate) async fn get<F>(
        &self,
        key: K,
        lasts: impl Fn(&A) -> Duration,
        ask: impl FnOnce() -> F,
    ) -> Result<A, ReviewError>
    where
        F: Future<Output = Result<A, ReviewError>> + Send + 'static,
    {
        let question = {
            let mut entries = self.lock();
            match entries.get(&key) {
                Some(Entry::Known { answer, until }) if *until > Instant::now() => return Ok(answer.clone()),
                Some(Entry::Asked(question)) => question.clone(),
                Some(Entry::Known { .. }) | None => {
                    let place = Arc::clone(&self.places).try_acquire_owned();
                    let place = place.map_err(|_| ReviewError::Busy)?;
                    make_room(&mut entries);
                    let answer = timeout(ANSWERED_WITHIN, ask());
                    let question = answer.map(move |answer| {
                        drop(place);
                        answer.unwrap_or(Err(ReviewError::TooLong))
                    });
                    let question = question.boxed().shared();
                    entries.insert(key.clone(), Entry::Asked(question.clone()));
                    question
                }
            }
        };
        // Whoever waits carries it on, also when the one who asked first has gone. If all have, it is asked anew.
        let asked = Asked { reviews: self, key: &key, question: &question };
        let answer = question.clone().await;
        drop(asked);
        if let Ok(answer) = &answer {
            let until = Instant::now() + lasts(answer);
            self.lock().insert(key, Entry::Known { answer: answer.clone(), until });
        }
        answer
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<K, Entry<A>>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Takes a question away when one who waited for its answer has it, or has gone. Others who wait have the question itself.
struct Asked<'a, K: Ord, A> {
    reviews: &'a Reviews<K, A>,
    key: &'a K,
    question: &'a Answer<A>,
}

impl<K: Ord, A> Drop for Asked<'_, K, A> {
    fn drop(&mut self) {
        let mut entries = self.reviews.entries.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(Entry::Asked(question)) = entries.get(self.key)
            && question.ptr_eq(self.question)
        {
            entries.remove(self.key);
        }
    }
}

/// What has ended goes first, then what ends soonest. Questions stay: somebody waits for each.
fn make_room<K: Ord + Clone, A>(entries: &mut BTreeMap<K, Entry<A>>) {
    if entries.len() < MOST {
        return;
    }
    let now = Instant::now();
    entries.retain(|_, entry| match entry {
        Entry::Asked(_) => true,
        Entry::Known { until, .. } => *until > now,
    });
    if entries.len() < MOST {
        return;
    }
    let ends = |entry: &Entry<A>| match entry {
        Entry::Asked(_) => None,
        Entry::Known { until, .. } => Some(*until),
    };
    let known = entries.iter().filter_map(|(key, entry)| Some((ends(entry)?, key)));
    if let Some(key) = known.min_by_key(|(until, _)| *until).map(|(_, key)| key.clone()) {
        entries.remove(&key);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use futures_util::future::join_all;
    use tokio::sync::Notify;

    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);

    fn away() -> ReviewError {
        ReviewError::Said("away".into())
    }

    fn in_words<A: std::fmt::Debug>(answer: Result<A, ReviewError>) -> String {
        match answer {
            Ok(answer) => format!("{answer:?}"),
            Err(error) => error.to_string(),
        }
    }

    #[derive(Default)]
    struct Server {
        asked: AtomicUsize,
        answers: Notify,
    }

    impl Server {
        async fn answer(self: Arc<Server>) -> Result<usize, ReviewError> {
            let number = self.asked.fetch_add(1, Ordering::Relaxed) + 1;
            self.answers.notified().await;
            if number == 2 { Err(away()) } else { Ok(number) }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn many_who_ask_at_once_are_one_question_and_its_answer_is_remembered_for_a_while() {
        let (server, reviews) = (Arc::<Server>::default(), Reviews::new());
        let get = || reviews.get("a", |_| MINUTE, || Arc::clone(&server).answer());
        let many = join_all((0..100).map(|_| get()));
        let (many, ()) = tokio::join!(many, async { server.answers.notify_one() });
        assert!(many.into_iter().all(|answer| in_words(answer) == "1"));
        assert_eq!(in_words(get().await), "1");
        tokio::time::advance(MINUTE).await;
        server.answers.notify_one();
        assert_eq!(in_words(get().await), away().to_string());
        server.answers.notify_one();
        assert_eq!(in_words(get().await), "3", "an error is not remembered");
        assert_eq!(server.asked.load(Ordering::Relaxed), 3);
    }

    #[tokio::test(start_paused = true)]
    async fn who_goes_before_the_answer_does_not_take_it_from_others() {
        let (server, reviews) = (Arc::<Server>::default(), Reviews::new());
        let get = || reviews.get("a", |_| MINUTE, || Arc::clone(&server).answer());
        let mut first = Box::pin(get());
        assert!(futures_util::poll!(&mut first).is_pending());
        let second = get();
        let (second, ()) = tokio::join!(second, async {
            drop(first);
            server.answers.notify_one();
        });
        assert_eq!(in_words(second), "1");
        assert_eq!(server.asked.load(Ordering::Relaxed), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_remembered_is_bounded() {
        let reviews = Reviews::<usize, usize>::new();
        for number in 0..MOST + 10 {
            let lasts = Duration::from_secs(60 + number as u64);
            reviews.get(number, |_| lasts, || async move { Ok(number) }).await.unwrap();
        }
        assert_eq!(reviews.lock().len(), MOST);
        assert!(!reviews.lock().contains_key(&0) && reviews.lock().contains_key(&(MOST + 9)));
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_that_hangs_is_asked_so_many_questions_at_once_and_each_ends() {
        let reviews = Reviews::<usize, usize>::new();
        let began = Instant::now();
        let ask = |number| reviews.get(number, |_| MINUTE, std::future::pending);
        let answers = join_all((0..10_000).map(ask)).await;
        assert_eq!(began.elapsed(), ANSWERED_WITHIN);
        let busy = answers.iter().filter(|answer| matches!(answer, Err(ReviewError::Busy))).count();
        let too_long = answers.iter().filter(|answer| matches!(answer, Err(ReviewError::TooLong))).count();
        assert_eq!((busy, too_long), (10_000 - MOST_ASKED, MOST_ASKED));
        assert!(reviews.lock().is_empty());
        assert_eq!(in_words(reviews.get(1, |_| MINUTE, async || Ok(1)).await), "1", "places are free again");
    }
}
