//! `serve/…`: parts of the web server, alone.

pub mod head;
