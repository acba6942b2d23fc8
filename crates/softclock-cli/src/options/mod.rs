//! Groups of options of `softclock serve`, each in a file of its own.

mod content;

pub(crate) use content::ContentOptions;
