//! Sockets in memory between the tasks of one runtime (feature `memory-net`): a fast carrier for tests of code that
//! uses sockets, without the kernel's network stack.
//!
//! Addresses are keys in a table of the runtime. A connection is two bounded pipes. A datagram is put into the
//! bounded queue of its receiver, or lost if that is full. There is no delay and no other loss.

mod tcp;
mod udp;

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::net::SocketAddr;
use std::rc::{Rc, Weak};

use softclock_core::SourceId;
use softclock_linux::readiness::Readiness;
use softclock_net::ports::DynamicPorts;

pub(crate) use tcp::{MemoryListener, MemoryTcp};
pub(crate) use udp::MemoryUdp;

use crate::net::common::Common;
use crate::net::registration::Registration;
use crate::runtime::each_turn::EachTurn;
use crate::runtime::inner::Inner;
use crate::runtime::sources::Sources;

/// The sockets that are bound in a runtime.
#[derive(Default)]
pub(crate) struct Network {
    listeners: Names<Queue<MemoryTcp>>,
    datagrams: Names<Queue<udp::Waiting>>,
    /// The ports for sockets that state none.
    ports: Cell<DynamicPorts>,
    /// Events since the loop last looked.
    arrived: RefCell<Vec<(SourceId, Readiness)>>,
}

impl EachTurn for Network {
    fn look(&self, sources: &mut Sources) -> bool {
        let mut arrived = self.arrived.borrow_mut();
        arrived
            .drain(..)
            .for_each(|(source, readiness)| sources.post(source, readiness));
        true
    }
}

impl Network {
    fn of(runtime: &Inner) -> &Rc<Self> {
        Common::of(runtime).memory.get_or_init(|| {
            let network = Rc::new(Self::default());
            runtime.each_turn.borrow_mut().push(network.clone());
            network
        })
    }

    fn post(&self, source: SourceId, readiness: Readiness) {
        self.arrived.borrow_mut().push((source, readiness));
    }

    /// Returns `address`, with the next port of the dynamic range if its port is 0.
    fn named(&self, address: SocketAddr) -> SocketAddr {
        let mut named = address;
        if named.port() == 0 {
            let mut ports = self.ports.get();
            named.set_port(ports.next_port());
            self.ports.set(ports);
        }
        named
    }
}

/// The connections or datagrams that wait at a socket.
struct Queue<T> {
    source: SourceId,
    waiting: RefCell<VecDeque<T>>,
    shared: bool,
    /// Whether datagrams that were sent together stay joined.
    joins: Cell<bool>,
}

impl<T> Names<Queue<T>> {
    /// Binds a queue for `registration` to `address`. Several may share an address if all are `shared`.
    fn open(
        &self,
        registration: &Registration,
        address: SocketAddr,
        shared: bool,
    ) -> io::Result<Rc<Queue<T>>> {
        let queue = Rc::new(Queue {
            source: registration.id(),
            waiting: RefCell::default(),
            shared,
            joins: Cell::new(false),
        });
        let beside = self.find(address);
        let may_share = shared && beside.is_none_or(|other| other.shared);
        self.bind(address, &queue, may_share)?;
        Ok(queue)
    }
}

/// The sockets bound to each address.
struct Names<T> {
    by_address: RefCell<BTreeMap<SocketAddr, Vec<Weak<T>>>>,
}

impl<T> Default for Names<T> {
    fn default() -> Self {
        Self {
            by_address: RefCell::default(),
        }
    }
}

impl<T> Names<T> {
    /// Binds `bound` to `address`, which must be free unless `shared`.
    fn bind(&self, address: SocketAddr, bound: &Rc<T>, shared: bool) -> io::Result<()> {
        let mut names = self.by_address.borrow_mut();
        let there = names.entry(address).or_default();
        there.retain(|other| other.strong_count() > 0);
        if !there.is_empty() && !shared {
            return Err(io::ErrorKind::AddrInUse.into());
        }
        there.push(Rc::downgrade(bound));
        Ok(())
    }

    /// Returns a socket bound to `address`. Sockets that share it take turns.
    fn find(&self, address: SocketAddr) -> Option<Rc<T>> {
        let mut names = self.by_address.borrow_mut();
        let there = names.get_mut(&address)?;
        there.retain(|bound| bound.strong_count() > 0);
        let next = there.first()?.upgrade();
        there.rotate_left(1);
        next
    }
}
