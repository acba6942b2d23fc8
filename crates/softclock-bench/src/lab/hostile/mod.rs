//! Attacks on servers, and another client beside them.
//!
//! A [`subject`] is a server with a configuration. A [`trial`] starts it on a processor of its own and measures what a
//! [`victim`] sees without the attack, under it and after it. An attack is a function that threads run until its
//! [`tally`] says that it is over: on raw HTTP/2 [`frames`] over a [`link`], or on many connections that [`hold`] what
//! they have got. Behind a proxy stands the [`upstream`]. All of it stays on the loopback interface; attacks come from
//! an address of their own, so that limits by client address can tell them from the victim.

pub mod frames;
pub mod hold;
pub mod link;
pub mod subject;
pub mod table;
pub mod tally;
pub mod trial;
pub mod upstream;
pub mod victim;
