//! `servers/…`: web servers beside each other.

pub mod static_files;
