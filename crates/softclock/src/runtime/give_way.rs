//! Work of low priority.

use std::task::{Context, Poll};

use super::inner::Inner;

/// Delays a task's next step until no other task is ready, within bounds. For work that many clients can cause at
/// once and that none of them waits for, such as reading data that arrives byte by byte.
///
/// To keep tasks that give way from starving, up to four of them run between two checks of the sockets, and one after
/// every 64 others.
#[derive(Debug, Default)]
pub struct GiveWay {
    has_asked: bool,
}

impl GiveWay {
    /// Returns pending once, and ready when the task runs again; then it starts over. Returns ready at once while the
    /// runtime decides about due timeouts, since the task's work may still complete a wait in time. Costs one more
    /// poll of the task, about 100 ns.
    ///
    /// # Panics
    /// If called outside a runtime.
    pub fn poll(&mut self, cx: &Context<'_>) -> Poll<()> {
        let may_wait = |runtime: &Inner| {
            let may_wait = !runtime.timeouts.is_pending();
            runtime
                .gives_way
                .set(runtime.running.get().filter(|_| may_wait));
            may_wait
        };
        if std::mem::take(&mut self.has_asked) || !Inner::with_current(|it| may_wait(it)) {
            return Poll::Ready(());
        }
        self.has_asked = true;
        cx.waker().wake_by_ref();
        Poll::Pending
    }
}
