//! Attacks on servers, and the service that another client gets meanwhile.
//!
//! A [`subject`] is a server with a configuration. A [`trial`] starts it on its own processor and measures the service
//! that a [`victim`] gets without the attack, under it and after it. An attack is a function that threads run until its
//! [`tally`] ends it: it sends raw HTTP/2 [`frames`] over a [`link`], or opens many connections and [`hold`]s them.
//! Proxies have the [`upstream`] behind them. All traffic stays on the loopback interface; attacks use a separate
//! address, so that limits per client address distinguish them from the victim.

pub mod frames;
pub mod hold;
pub mod link;
pub mod subject;
pub mod table;
pub mod tally;
pub mod trial;
pub mod upstream;
pub mod victim;
