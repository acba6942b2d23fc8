//! State shared by the sockets of one runtime. The runtime stores it without knowing its type.

use std::any::Any;
#[cfg(feature = "memory-net")]
use std::cell::OnceCell;
use std::cell::RefCell;
use std::rc::{Rc, Weak};

#[cfg(feature = "memory-net")]
use super::memory::Network;
use super::pacing::Estimator;
use crate::runtime::inner::Inner;

/// The shared state of one runtime's sockets, created when a socket first needs it.
#[derive(Default)]
pub(crate) struct Common {
    pub(super) estimator: Estimator,
    /// The network stack of this runtime, if it has one, of a type that only `stack` knows.
    /// Its task holds it.
    pub(super) stack: RefCell<Option<Weak<dyn Any>>>,
    /// The stack of another runtime that this one shares, of a type that only `stack` knows.
    pub(super) shared_stack: RefCell<Option<Rc<dyn Any>>>,
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
