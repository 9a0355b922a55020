//! Runs independent pieces of work on as many threads as there are processors.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use crate::plan::Failure;

/// The results of `work` for each number below `count`, in order.
pub(crate) fn map<T: Send>(
    count: usize,
    work: impl Fn(usize) -> Result<T, Failure> + Sync,
) -> Result<Vec<T>, Failure> {
    let next = AtomicUsize::new(0);
    let results: Vec<Mutex<Option<Result<T, String>>>> =
        (0..count).map(|_| Mutex::new(None)).collect();
    thread::scope(|scope| {
        for _ in 0..thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(|| {
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    let Some(place) = results.get(number) else { return };
                    let result = work(number).map_err(|why| why.to_string());
                    *place.lock().expect("no piece panics") = Some(result);
                }
            });
        }
    });
    let result = |place: Mutex<Option<Result<T, String>>>| {
        place.into_inner().expect("no piece panics").expect("every piece was done")
    };
    Ok(results.into_iter().map(result).collect::<Result<_, String>>()?)
}
