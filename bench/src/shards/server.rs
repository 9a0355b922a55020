//! The application of the server: a task for each connection, and the counts of a shard.

use std::cell::Cell;
use std::io;
use std::rc::Rc;
use std::time::Instant;

use bytes::Bytes;
use lightwait::executor::spawn_local;
use lightwait::local::{TcpListener, TcpStream};
use lightwait::rt;
use lightwait::shard::Handle;
use tokio::io::AsyncReadExt;

use super::sources::SERVER;
use super::{Plan, REQUEST_LEN, Window, Workload};
use crate::sample::processor_time;

/// An answer is written and counted in pieces of this length, at most.
const PIECE_LEN: usize = 50_000;

/// What a shard has served.
#[derive(Debug, Default)]
pub(super) struct Served {
    answers: Cell<u64>,
    bytes: Cell<u64>,
}

impl Served {
    /// Begins to serve on this shard.
    pub(super) fn start(shard: &Handle, workload: Workload) -> io::Result<Rc<Served>> {
        let listener = TcpListener::bind_on(shard, SERVER)?;
        let served = Rc::new(Served::default());
        let counted = served.clone();
        let answer = Bytes::from(vec![b'x'; workload.answer_len()]);
        shard.spawn_local(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (answer, served) = (answer.clone(), counted.clone());
                spawn_local(async move {
                    // The client sees and reports a failure.
                    let _ = served.serve(stream, workload, &answer).await;
                });
            }
        });
        Ok(served)
    }

    async fn serve(
        &self,
        mut stream: TcpStream,
        workload: Workload,
        answer: &Bytes,
    ) -> io::Result<()> {
        let mut request = [0; REQUEST_LEN];
        loop {
            stream.read_exact(&mut request).await?;
            for begin in (0..answer.len()).step_by(PIECE_LEN) {
                let piece = answer.slice(begin..answer.len().min(begin + PIECE_LEN));
                let piece_len = piece.len() as u64;
                stream.write_all_bytes(piece).await?;
                self.bytes.set(self.bytes.get() + piece_len);
            }
            self.answers.set(self.answers.get() + 1);
            if workload.closes() {
                return Ok(());
            }
        }
    }

    /// Waits until the plan's window is over, and returns what was served in it. The caller is a
    /// task on the thread of this shard.
    pub(super) async fn window(&self, plan: &Plan) -> Window {
        rt::sleep(plan.warm_up).await;
        let (begin, processor) = (Instant::now(), processor_time());
        let (answers, bytes) = (self.answers.get(), self.bytes.get());
        rt::sleep(plan.window).await;
        Window {
            answers: self.answers.get() - answers,
            bytes: self.bytes.get() - bytes,
            elapsed: begin.elapsed(),
            processor: processor_time().saturating_sub(processor),
        }
    }
}
