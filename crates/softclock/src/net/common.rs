//! State shared by the sockets of one runtime. The runtime stores it without knowing its type.

#[cfg(feature = "memory-net")]
use std::{cell::OnceCell, rc::Rc};

#[cfg(feature = "memory-net")]
use super::memory::Network;
use super::pacing::Estimator;
use crate::runtime::inner::Inner;

/// The shared state of one runtime's sockets, created when a socket first needs it.
#[derive(Default)]
pub(crate) struct Common {
    pub(super) estimator: Estimator,
    #[cfg(feature = "memory-net")]
    pub(super) memory: OnceCell<Rc<Network>>,
}

impl Common {
    /// Returns the shared state of `runtime`.
    #[inline]
    pub(super) fn of(runtime: &Inner) -> &Self {
        let common = runtime.common.get_or_init(|| Box::<Self>::default());
        common.downcast_ref().expect("nothing else is stored there")
    }
}
