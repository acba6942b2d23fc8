//! Bars drawn with block characters.

/// Draws `share` of `width` columns as a bar, in eighths of a column. A share above zero shows at least one eighth.
pub(crate) fn bar(share: f64, width: usize) -> String {
    let eighths = (share.clamp(0.0, 1.0) * width as f64 * 8.0).round() as usize;
    let eighths = if share > 0.0 { eighths.max(1) } else { eighths };
    const PARTS: [&str; 8] = ["", "▏", "▎", "▍", "▌", "▋", "▊", "▉"];
    "█".repeat(eighths / 8) + PARTS[eighths % 8]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_end_in_eighths() {
        assert_eq!(bar(1.0, 4), "████");
        assert_eq!(bar(0.5 + 1.0 / 32.0, 4), "██▏");
        assert_eq!((bar(0.0, 4).as_str(), bar(1e-9, 4).as_str()), ("", "▏"));
        assert_eq!(bar(7.0, 4), "████");
    }
}
