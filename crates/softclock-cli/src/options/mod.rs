//! Groups of options of `softclock serve`, each in a file of its own.

mod content;
mod operation;

pub(crate) use content::ContentOptions;
pub(crate) use operation::OperationOptions;
