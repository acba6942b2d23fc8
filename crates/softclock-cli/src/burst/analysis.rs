//! Turns captures into figures.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use softclock_core::{Instant, Rate};
use softclock_wire::Burstiness;
use softclock_wire::burstiness::{Options, Volume};
use softclock_wire::capture::{Direction, Directions, Packet};
use softclock_wire::packet::Filter;

use super::progress::Progress;
use super::reader::{ReadError, read};
use super::{BurstOptions, DirectionChoice};

/// The figures of one stream of packets.
pub(super) struct Stream {
    /// The file, or the first file and the number of others; followed by the direction, if the stream is one of two.
    pub(super) name: String,
    /// The direction and its senders; `None` if the capture has one direction only, or both are analysed together.
    pub(super) direction: Option<(Direction, String)>,
    /// The options of the analysis, with the bottleneck's rate filled in.
    pub(super) options: Options,
    /// Whether that rate is the stream's mean rate.
    pub(super) rate_is_mean: bool,
    pub(super) burstiness: Burstiness,
    pub(super) left_out: LeftOut,
    /// Errors of reading, each as a line that names the file.
    pub(super) errors: Vec<String>,
}

impl Stream {
    /// Whether there are figures to show: an empty capture has them, an unreadable one does not.
    pub(super) fn is_of_use(&self) -> bool {
        self.burstiness.volume().packets() > 0 || self.errors.is_empty()
    }
}

/// Counts of packets that the analysis left out or could not classify.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct LeftOut {
    /// Packets that do not match the filter.
    pub(super) by_filter: u64,
    /// Packets of a link type without known headers, to which the filter cannot apply; not counted in `by_filter`.
    pub(super) by_link: u64,
    /// Packets without a timestamp.
    pub(super) without_time: u64,
    /// Packets of unknown direction, which are analysed with the first direction.
    pub(super) undirected: u64,
}

/// The packets to analyse, their lengths and their directions.
struct Selection<'a> {
    filter: Option<&'a Filter>,
    overhead: u32,
    /// `None` if all packets belong to one stream.
    directions: Option<Directions>,
    left_out: LeftOut,
}

impl Selection<'_> {
    #[inline]
    fn select(&mut self, packet: &Packet<'_>) -> Option<(Direction, Instant, u32)> {
        if let Some(filter) = self.filter {
            let Some(headers) = packet.link.headers(packet.data) else {
                self.left_out.by_link += 1;
                return None;
            };
            if !filter.matches(&headers) {
                self.left_out.by_filter += 1;
                return None;
            }
        }
        let Some(at) = packet.at else {
            self.left_out.without_time += 1;
            return None;
        };
        let bytes = packet.original_bytes.saturating_add(self.overhead);
        Some((self.direction_of(packet), at, bytes))
    }

    #[inline]
    fn direction_of(&mut self, packet: &Packet<'_>) -> Direction {
        let Some(directions) = &mut self.directions else {
            return Direction::First;
        };
        directions.direction_of(packet).unwrap_or_else(|| {
            self.left_out.undirected += 1;
            Direction::First
        })
    }
}

/// Analyses each file by itself, or all files as one stream.
///
/// # Errors
/// Fails if standard input is named twice, or if a mean rate is needed of an input that can be read only once. The
/// error is one line.
pub(super) fn analyse(options: &BurstOptions) -> Result<Vec<Stream>, String> {
    let groups: Vec<&[PathBuf]> = match options.together {
        true => vec![&options.files],
        false => options.files.chunks(1).collect(),
    };
    let stdin = options.files.iter().filter(|file| is_stdin(file)).count();
    if stdin > 1 {
        return Err("standard input can be read only once".into());
    }
    if options.rate.is_none()
        && let Some(once) = options.files.iter().find(|file| !can_be_read_twice(file))
    {
        let name = name(once);
        return Err(format!(
            "{name} can be read only once, so give its rate with --rate"
        ));
    }
    let passes = if options.rate.is_none() { 2 } else { 1 };
    let mut progress = Progress::new(total_bytes(&options.files).map(|bytes| bytes * passes));
    let streams = groups
        .into_iter()
        .map(|files| stream(options, files, &mut progress));
    Ok(streams.flatten().collect())
}

/// Analyses `files` as one stream, or as one stream for each direction.
fn stream(options: &BurstOptions, files: &[PathBuf], progress: &mut Progress) -> Vec<Stream> {
    let rates = match options.rate {
        Some(rate) => [Some(rate); 2],
        None => mean_rates(options, files, progress),
    };
    let asked = rates.map(|rate| Options {
        rate,
        line: options.line_rate,
        train_gap: options.train_gap,
        windows: options.window.clone(),
    });
    let mut analysers = [0, 1].map(|direction| Burstiness::new(&asked[direction]));
    let (selection, errors) = each_packet(options, files, progress, |direction, at, bytes| {
        analysers[direction as usize].on_packet(at, bytes);
    });
    let rate_is_mean = options.rate.is_none();
    let are_two = analysers[Direction::Second as usize].volume().packets() > 0;
    let all = [Direction::First, Direction::Second].into_iter();
    let all = all.zip(asked).zip(analysers);
    let stream = |((direction, options), burstiness): ((Direction, Options), Burstiness)| {
        let label = selection.directions.as_ref().filter(|_| are_two);
        let label = label.map(|directions| (direction, label_of(direction, directions)));
        let name = name_of_all(files);
        Stream {
            name: match &label {
                Some((_, label)) => format!("{name} {label}"),
                None => name,
            },
            direction: label,
            rate_is_mean,
            options,
            burstiness,
            left_out: selection.left_out,
            // Read errors belong to the file, so report them with one direction only.
            errors: match direction {
                Direction::First => errors.clone(),
                Direction::Second => Vec::new(),
            },
        }
    };
    all.map(stream).take(1 + usize::from(are_two)).collect()
}

/// Names a direction by its senders, or by its receivers if there are fewer of them.
fn label_of(direction: Direction, directions: &Directions) -> String {
    let mut senders = directions.senders(direction);
    let mut receivers = directions.senders(direction.other());
    match (
        senders.next(),
        senders.count(),
        receivers.next(),
        receivers.count(),
    ) {
        (Some(sender), 0, ..) => format!("from {sender}"),
        (_, _, Some(receiver), 0) => format!("to {receiver}"),
        (Some(sender), others, ..) => format!("from {sender} and {others} others"),
        (None, ..) => "of no known sender".into(),
    }
}

fn mean_rates(
    options: &BurstOptions,
    files: &[PathBuf],
    progress: &mut Progress,
) -> [Option<Rate>; 2] {
    let mut volumes = [Volume::default(), Volume::default()];
    // Ignore errors here: the analysis reads the files again and reports them.
    each_packet(options, files, progress, |direction, at, bytes| {
        volumes[direction as usize].on_packet(at, bytes);
    });
    volumes.map(|volume| volume.mean_rate())
}

/// Calls `on_packet` for each selected packet; returns the counts of the others, and the read errors.
fn each_packet<'a>(
    options: &'a BurstOptions,
    files: &[PathBuf],
    progress: &mut Progress,
    mut on_packet: impl FnMut(Direction, Instant, u32),
) -> (Selection<'a>, Vec<String>) {
    let mut selection = Selection {
        filter: options.filter.as_ref(),
        overhead: options.overhead,
        directions: match options.direction {
            DirectionChoice::Each => Some(Directions::default()),
            DirectionChoice::Both => None,
        },
        left_out: LeftOut::default(),
    };
    let mut errors = Vec::new();
    for file in files {
        let on_packet = |packet: &Packet<'_>| {
            if let Some((direction, at, bytes)) = selection.select(packet) {
                on_packet(direction, at, bytes);
            }
        };
        let on_read = |bytes| progress.advance(bytes);
        let result = match is_stdin(file) {
            true => read(io::stdin().lock(), on_read, on_packet),
            false => File::open(file)
                .map_err(ReadError::Io)
                .and_then(|file| read(file, on_read, on_packet)),
        };
        if let Err(error) = result {
            errors.push(format!("{}: {error}", name(file)));
        }
    }
    (selection, errors)
}

fn is_stdin(file: &Path) -> bool {
    file.as_os_str() == "-"
}

/// Whether `file` can be read twice. True for one that is missing or a directory: reading it reports the error.
fn can_be_read_twice(file: &Path) -> bool {
    !is_stdin(file)
        && file
            .metadata()
            .map_or(true, |it| it.is_file() || it.is_dir())
}

fn total_bytes(files: &[PathBuf]) -> Option<u64> {
    let length = |file: &PathBuf| {
        let file = file.metadata().ok().filter(|_| !is_stdin(file))?;
        file.is_file().then_some(file.len())
    };
    files.iter().map(length).sum()
}

fn name(file: &Path) -> String {
    match is_stdin(file) {
        true => "standard input".into(),
        false => file.display().to_string(),
    }
}

fn name_of_all(files: &[PathBuf]) -> String {
    match files {
        [only] => name(only),
        [first, others @ ..] => format!("{} and {} more", name(first), others.len()),
        [] => String::new(),
    }
}
