//! A site: the files of a directory, and the responses made from them.
//!
//! | subject | file |
//! |---|---|
//! | the content of a site and its options | `content.rs` |
//! | from a request to a response | `service.rs` |
//! | the directory's files, with a cache of small ones | `store.rs`, `cache.rs` |
//! | a file's type, validators and ranges, and the responses made of them | `representation.rs`, `media.rs` |
//! | bodies of responses | `body.rs`, `file_body.rs`, `multipart.rs` |
//! | files that responses hold open, and reads that wait for a disk | `open_files.rs`, `disk_reads.rs` |
//! | refused requests | `refusal.rs` |
//! | lists of directories | `listing.rs` |
//! | header fields by rule, error pages | `header_rule.rs`, `error_page.rs` |
//! | the site that is part of the program | `bundled.rs` |

pub mod body;
pub(crate) mod bundled;
pub(crate) mod cache;
pub(crate) mod content;
pub(crate) mod disk_reads;
pub(crate) mod error_page;
pub(crate) mod file_body;
pub(crate) mod header_rule;
pub(crate) mod listing;
pub(crate) mod media;
pub(crate) mod multipart;
pub(crate) mod open_files;
pub(crate) mod refusal;
pub(crate) mod representation;
pub(crate) mod service;
pub(crate) mod store;
