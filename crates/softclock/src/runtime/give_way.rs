//! Work that is not urgent.

use std::task::{Context, Poll};

use super::inner::Inner;

/// Has a task's next step wait until no other task is ready, within bounds: for work that many clients can cause at once and
/// that none of them waits for, such as reading what arrives byte by byte.
///
/// Of tasks that give way, four run between two looks at the sockets, and one for each 64 others, so that they are not starved.
#[derive(Debug, Default)]
pub struct GiveWay {
    has_asked: bool,
}

impl GiveWay {
    /// Pending once, and ready when the task's turn has come; then it begins anew. Ready at once while timeouts are being
    /// judged, which what the task is about to do may still end in time. Costs a turn of the task, some 100 ns.
    ///
    /// # Panics
    /// Outside a runtime.
    pub fn poll(&mut self, cx: &Context<'_>) -> Poll<()> {
        let may_wait = |runtime: &Inner| {
            let may_wait = !runtime.timeouts.is_pending();
            runtime.gives_way.set(may_wait);
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
