//! Paced sending and a softclock runtime for QUIC with quinn.
//!
//! quinn paces too, but by the timers of its runtime: it hands over bursts of ten or more datagrams, which arrive back
//! to back at the bottleneck. This crate has two parts, which can be used together or alone:
//!
//! - [`paced`] and [`paced_by_window`] make a socket for quinn that spreads these datagrams over time, at a rate that
//!   is stated, or learnt from the congestion window and the round trip of each connection. They work under tokio and
//!   under softclock.
//! - [`SoftclockRuntime`] runs quinn's tasks and timers on a softclock runtime.
//!
//! # Example
//! A server on tokio that sends at 90 Mbit/s at most. For each endpoint it is one line:
//! ```
//! use quinn::{Endpoint, EndpointConfig, ServerConfig, TokioRuntime};
//! use softclock_quinn::{Pacing, paced};
//! use std::net::UdpSocket;
//! use std::sync::Arc;
//!
//! # fn server(server_config: ServerConfig) -> std::io::Result<Endpoint> {
//! let socket = UdpSocket::bind("[::1]:0")?;
//! let pacing = Pacing::of_rate("90mbit".parse().expect("a rate"));
//! Endpoint::new_with_abstract_socket(
//!     EndpointConfig::default(),
//!     Some(server_config),
//!     paced(socket, &TokioRuntime, pacing)?,
//!     Arc::new(TokioRuntime),
//! )
//! # }
//! ```
//!
//! The same with a rate for each connection, learnt from its window. The congestion controller reports it:
//! ```
//! use quinn::congestion::CubicConfig;
//! use quinn::{Endpoint, EndpointConfig, ServerConfig, TokioRuntime, TransportConfig};
//! use softclock_quinn::{Limits, observed, paced_by_window};
//! use std::net::UdpSocket;
//! use std::sync::Arc;
//!
//! # fn server(mut server_config: ServerConfig) -> std::io::Result<Endpoint> {
//! let mut transport = TransportConfig::default();
//! transport.congestion_controller_factory(observed(CubicConfig::default()));
//! server_config.transport_config(Arc::new(transport));
//!
//! let socket = UdpSocket::bind("[::1]:0")?;
//! Endpoint::new_with_abstract_socket(
//!     EndpointConfig::default(),
//!     Some(server_config),
//!     paced_by_window(socket, &TokioRuntime, Limits::default())?,
//!     Arc::new(TokioRuntime),
//! )
//! # }
//! ```
//!
//! # How datagrams leave
//! quinn's connections put datagrams into a bounded queue, and wait when it is full. They leave when they are due: by
//! calls of quinn, each of which sends those that are, or else by a timer. Under softclock this is a soft timer of the
//! runtime's loop, and under other runtimes one of the [timer thread](Timers) of `softclock-tokio`, at the price of a
//! switch of threads.
//!
//! At low rates they leave one by one; where two take no more than 500 us (48 Mbit/s), as many as do leave together by
//! one call (segmentation offload). Never more than [`Limits::burst`] leave back to back. The default is four. State
//! ten for rates near 1 Gbit/s, where they take 120 us: calls with four cost the sender up to a quarter of its
//! processor time. State two if the bottleneck's queue is as short as five datagrams and its rate 100 Mbit/s or more,
//! and one or two if its queue is shorter still, whatever its rate, so that it does not lose datagrams when the timer
//! was late. The price of a small burst is the rate of a thread that gets its processor late: four datagrams for each 5
//! ms are 10 Mbit/s. If the rate is not reached and each of [`Counts::calls`] sends nearly a burst, a larger one helps.
//!
//! With a burst of four or more, a learnt rate begins with trains of four at any rate, which measure the path
//! ([`observed`]).
//!
//! Datagrams in the queue are sent even if the endpoint is dropped meanwhile, so that the peer learns that a connection
//! was closed. Under softclock they leave while the runtime runs, and its end drops them: await
//! [`wait_idle`](quinn::Endpoint::wait_idle) in `block_on`, which gives a closed connection three probe timeouts.
#![forbid(unsafe_code)]

mod growth;
mod learnt;
mod paced;
mod runtime;
mod trains;
mod window;

pub use paced::{PacedSocket, paced, paced_by_window};
pub use runtime::SoftclockRuntime;
pub use softclock_tokio::{Counts, Limits, Pacing, Rate, Timers};
pub use window::{Observed, observed, observed_unchanged};

#[doc = include_str!("../README.md")]
#[cfg(doctest)]
pub struct Readme;
