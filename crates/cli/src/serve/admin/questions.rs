//! How the admin door asks the shards: a question is a closure that a shard runs as a task, between
//! other tasks. It must be short, since it holds the shard's connections up.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc::{self, Receiver, Sender};
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout_at};

use crate::serve::Stacks;

/// How long a shard has to answer: one that is busy for longer is stuck.
const PATIENCE: Duration = Duration::from_secs(1);
/// How long for one that looks at all its connections.
const LONG_PATIENCE: Duration = Duration::from_secs(10);
/// Questions that wait for a shard at most.
const WAITING: usize = 64;

/// What a shard is asked.
pub(in crate::serve) type Question = Box<dyn FnOnce(&Stacks) + Send>;

/// Asks the shards of a server. Clones ask the same.
#[derive(Clone, Debug)]
pub(in crate::serve) struct Shards(Arc<[Sender<Question>]>);

impl Shards {
    /// So many shards, and where each finds its questions.
    pub(in crate::serve) fn new(count: u16) -> (Shards, Vec<Receiver<Question>>) {
        let (senders, receivers): (Vec<_>, Vec<_>) =
            (0..count).map(|_| mpsc::channel(WAITING)).unzip();
        (Shards(senders.into()), receivers)
    }

    /// How many there are.
    pub(in crate::serve) fn count(&self) -> usize {
        self.0.len()
    }

    /// Asks one shard. The future returns its answer, or `None` if it gives none in time.
    pub(super) fn ask<T: Send + 'static, Q>(
        &self,
        shard: usize,
        question: Q,
    ) -> impl Future<Output = Option<T>> + use<T, Q> + Send
    where
        Q: FnOnce(&Stacks) -> T + Send + 'static,
    {
        let (answer, answered) = oneshot::channel();
        let put = self.0[shard].try_send(Box::new(move |stacks| {
            // The asker may have gone.
            let _ = answer.send(question(stacks));
        }));
        let (is_put, end) = (put.is_ok(), Instant::now() + PATIENCE);
        async move {
            if !is_put {
                return None;
            }
            timeout_at(end, answered).await.ok()?.ok()
        }
    }

    /// Asks one shard, on a thread that may wait. Returns its answer, or `None` if it is gone or
    /// gives none in time.
    pub(in crate::serve) fn ask_and_wait<T: Send + 'static>(
        &self,
        shard: usize,
        question: impl FnOnce(&Stacks) -> T + Send + 'static,
    ) -> Option<T> {
        let (answer, answered) = std::sync::mpsc::sync_channel(1);
        let question: Question = Box::new(move |stacks| {
            // The asker may have gone.
            let _ = answer.send(question(stacks));
        });
        self.0.get(shard)?.blocking_send(question).ok()?;
        answered.recv_timeout(LONG_PATIENCE).ok()
    }

    /// Asks all of them at once. Returns their answers in the order of the shards.
    pub(super) async fn ask_all<T: Send + 'static>(
        &self,
        question: impl FnOnce(&Stacks) -> T + Clone + Send + 'static,
    ) -> Vec<Option<T>> {
        let asked: Vec<_> = (0..self.count()).map(|it| self.ask(it, question.clone())).collect();
        let mut answers = Vec::new();
        for answer in asked {
            answers.push(answer.await);
        }
        answers
    }
}

/// Answers a shard's questions for ever.
pub(in crate::serve) async fn answer(mut questions: Receiver<Question>, stacks: Stacks) {
    while let Some(question) = questions.recv().await {
        question(&stacks);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_shard_that_is_stuck_or_gone_gives_no_answer() {
        let (shards, mut questions) = Shards::new(2);
        drop(questions.pop());
        let begin = Instant::now();
        // Neither runs what it is asked: one has ended, and the other is busy.
        let answers = shards.ask_all(|_| ()).await;
        assert_eq!(answers, [None, None]);
        assert!((PATIENCE..PATIENCE * 2).contains(&begin.elapsed()));
        // It is asked no more than it can hold, however long it is busy.
        for _ in 0..WAITING {
            drop(shards.ask(0, |_| ()));
        }
        let begin = Instant::now();
        assert_eq!(shards.ask(0, |_| ()).await, None);
        assert!(begin.elapsed() < PATIENCE / 2, "at once");
    }
}
