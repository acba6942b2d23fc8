//! `serve/…`: single parts of the web server.

pub mod head;
