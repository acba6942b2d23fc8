//! From captures to figures.

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

/// What was found out about one stream.
pub(super) struct Stream {
    /// What it is called: its file, or the first and how many more; and its direction, if it is one of two.
    pub(super) name: String,
    /// Which of the two directions of its link it is, and its senders; `None` if there is one only, or both are
    /// asked for together.
    pub(super) direction: Option<(Direction, String)>,
    /// What was asked, with the bottleneck's rate.
    pub(super) options: Options,
    /// Whether that is the stream's own mean.
    pub(super) rate_is_mean: bool,
    pub(super) burstiness: Burstiness,
    pub(super) left_out: LeftOut,
    /// In lines that name the file.
    pub(super) errors: Vec<String>,
}

impl Stream {
    /// Whether there is anything to show: at least a capture without packets.
    pub(super) fn is_of_use(&self) -> bool {
        self.burstiness.volume().packets() > 0 || self.errors.is_empty()
    }
}

/// Packets that were not analysed.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct LeftOut {
    /// The filter does not hold for them.
    pub(super) by_filter: u64,
    /// The filter cannot be asked, as their link is not known; these are not in `by_filter`.
    pub(super) by_link: u64,
    /// They have no time.
    pub(super) without_time: u64,
    /// These are analysed, with the first direction: their own cannot be told.
    pub(super) undirected: u64,
}

/// Which packets are analysed, as how long, and of which direction.
struct Selection<'a> {
    filter: Option<&'a Filter>,
    overhead: u32,
    /// `None` where all packets are of one stream.
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

/// Analyses each file, or all together.
///
/// # Errors
/// The mean rate is asked for of what can be read only once; in one line.
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
        return Err(format!("{name} can be read only once, so tell the --rate"));
    }
    let passes = if options.rate.is_none() { 2 } else { 1 };
    let mut progress = Progress::new(total_bytes(&options.files).map(|bytes| bytes * passes));
    let streams = groups
        .into_iter()
        .map(|files| stream(options, files, &mut progress));
    Ok(streams.flatten().collect())
}

/// A stream, or one for each direction in which packets go.
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
            // They are of the file, and told once.
            errors: match direction {
                Direction::First => errors.clone(),
                Direction::Second => Vec::new(),
            },
        }
    };
    all.map(stream).take(1 + usize::from(are_two)).collect()
}

/// Who sends in a direction, or to whom if those are fewer.
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
    // Errors are found again when the files are analysed.
    each_packet(options, files, progress, |direction, at, bytes| {
        volumes[direction as usize].on_packet(at, bytes);
    });
    volumes.map(|volume| volume.mean_rate())
}

/// Calls `on_packet` for those that are selected; returns what was found out meanwhile, and what went wrong.
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

/// What is not there is told when it is read.
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
