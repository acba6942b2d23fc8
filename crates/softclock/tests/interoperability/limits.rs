//! Parts of other crates that do not work, or need care.

use std::cell::Cell;
use std::rc::Rc;

use crate::{MS, run};

/// Spawns a task that counts its turns.
fn count_turns() -> Rc<Cell<u32>> {
    let turns = Rc::new(Cell::new(0));
    let counted = turns.clone();
    softclock::spawn_local(async move {
        loop {
            counted.set(counted.get() + 1);
            softclock::yield_now().await;
        }
    });
    turns
}

#[test]
fn tokio_timers_need_a_runtime_of_tokio() {
    run(async {
        let mut task = softclock::spawn_local(async { tokio::time::sleep(MS).await });
        let error = task.outcome().await.unwrap_err().to_string();
        assert!(error.contains("there is no reactor running"), "{error}");
    });
}

/// Operations of other crates that are ready at once do not count as calls, so a loop over them keeps the thread.
#[test]
fn a_full_channel_of_another_crate_keeps_the_thread() {
    run(async {
        let (sender, mut receiver) = tokio::sync::mpsc::unbounded_channel();
        (0..10_000).for_each(|n| sender.send(n).unwrap());
        let turns = count_turns();
        softclock::yield_now().await;
        let before = turns.get();
        for _ in 0..5_000 {
            receiver.recv().await.unwrap();
        }
        assert_eq!(turns.get(), before, "no other task has run");
        for n in 0..5_000 {
            if n % 128 == 0 {
                softclock::yield_now().await;
            }
            receiver.recv().await.unwrap();
        }
        assert!(turns.get() >= before + 5_000 / 128);
    });
}
