//! Single rules, step by step.
