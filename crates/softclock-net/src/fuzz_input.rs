//! Cuts the input of fuzz targets into settings and steps, for the property tests and the fuzzer (`fuzz/`).

/// Cuts the input into settings and steps of fixed lengths; `None` if it is too short for the settings. A rest that is
/// shorter than a step is left out.
pub(crate) fn settings_and_steps<const SETTINGS: usize, const STEP: usize>(
    input: &[u8],
) -> Option<([u8; SETTINGS], &[[u8; STEP]])> {
    let (settings, steps) = input.split_first_chunk()?;
    let (steps, _) = steps.as_chunks();
    Some((*settings, steps))
}
