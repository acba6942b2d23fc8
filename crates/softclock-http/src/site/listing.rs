//! The page that lists a directory.

use std::fmt::Write;
use std::io;
use std::time::SystemTime;

use percent_encoding::percent_encode;
use softclock::fs::{Entries, Entry, Root};

use crate::syntax::path::{RequestPath, UNSAFE_IN_SEGMENT};

/// Reads a directory and renders its list. Blocks on the disk.
///
/// # Errors
/// Those of [`Root::read_directory`].
pub(crate) fn page(root: &Root, path: &RequestPath) -> io::Result<String> {
    // Hidden files are not served, so they are not listed.
    let visible = |name: &[u8]| !name.starts_with(b".");
    let mut found = root.read_directory(path.relative(), ENTRIES_MAX, visible)?;
    sort(&mut found.entries);
    Ok(render(&found, path.as_bytes()))
}

/// Sorts directories first, each group by name.
fn sort(entries: &mut [Entry]) {
    entries.sort_unstable_by(|a, b| {
        let key = |entry: &Entry| !entry.metadata.is_dir();
        key(a).cmp(&key(b)).then_with(|| a.name.cmp(&b.name))
    });
}

fn render(found: &Entries, path: &[u8]) -> String {
    let mut title = String::from("/");
    if !path.is_empty() {
        title += &escaped(path);
        title.push('/');
    }
    let mut page = format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width\">\n<title>{title}</title>\n\
         <style>{STYLE}</style>\n</head>\n<body>\n<h1>{title}</h1>\n<table>\n\
         <tr><th>Name</th><th>Size</th><th>Modified (UTC)</th></tr>\n"
    );
    if !path.is_empty() {
        page += "<tr><td><a href=\"../\">../</a></td><td></td><td></td></tr>\n";
    }
    for entry in &found.entries {
        push_row(&mut page, entry);
    }
    page += "</table>\n";
    if found.truncated {
        let _ = writeln!(
            page,
            "<p>The directory has more entries; {ENTRIES_MAX} are shown.</p>"
        );
    }
    page += "</body>\n</html>\n";
    page
}

fn push_row(page: &mut String, entry: &Entry) {
    let slash = if entry.metadata.is_dir() { "/" } else { "" };
    let size = if entry.metadata.is_dir() {
        String::new()
    } else {
        readable_size(entry.metadata.len())
    };
    // The leading `./` keeps a name with a colon from being parsed as a URL scheme, should encoding miss one.
    let _ = writeln!(
        page,
        "<tr><td><a href=\"./{}{slash}\">{}{slash}</a></td><td>{size}</td><td>{}</td></tr>",
        percent_encode(&entry.name, UNSAFE_IN_SEGMENT),
        escaped(&entry.name),
        date(entry.metadata.modified()),
    );
}

/// Escapes a name for HTML. Invalid UTF-8, control characters, and characters that change the direction of text are
/// replaced.
fn escaped(name: &[u8]) -> String {
    let mut text = String::with_capacity(name.len());
    for character in String::from_utf8_lossy(name).chars() {
        match character {
            '&' => text += "&amp;",
            '<' => text += "&lt;",
            '>' => text += "&gt;",
            '"' => text += "&quot;",
            '\'' => text += "&#39;",
            '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => {
                text.push(char::REPLACEMENT_CHARACTER);
            }
            control if control.is_control() => text.push(char::REPLACEMENT_CHARACTER),
            other => text.push(other),
        }
    }
    text
}

/// Formats a size with about three digits: `512 B`, `1.5 KB`, `12 MB`.
fn readable_size(bytes: u64) -> String {
    if bytes < 1_000 {
        return format!("{bytes} B");
    }
    let mut size = bytes as f64 / 1_000.0;
    let mut units = ["KB", "MB", "GB", "TB", "PB", "EB"].iter().peekable();
    let mut unit = units.next().expect("six of them");
    // The unit changes where rounding would show 1000.
    while size >= 999.5
        && let Some(next) = units.next()
    {
        size /= 1_000.0;
        unit = next;
    }
    if size < 9.95 {
        format!("{size:.1} {unit}")
    } else {
        format!("{size:.0} {unit}")
    }
}

/// Formats as `2001-02-03 04:05`; times before 1970 are empty.
fn date(time: SystemTime) -> String {
    let Ok(since) = time.duration_since(SystemTime::UNIX_EPOCH) else {
        return String::new();
    };
    let minutes = since.as_secs() / 60;
    let (year, month, day) = civil(minutes / (24 * 60));
    let (hour, minute) = (minutes / 60 % 24, minutes % 60);
    format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}")
}

/// Returns the Gregorian date of a day, counted from 1970-01-01. Internally years begin in March, so that the leap day
/// comes last.
const fn civil(day: u64) -> (u64, u64, u64) {
    const DAYS_400_YEARS: u64 = 146_097;
    // Counts from 0000-03-01 instead.
    let day = day + 719_468;
    let day_of_era = day % DAYS_400_YEARS;
    let leap_days = day_of_era / 1_460 - day_of_era / 36_524 + day_of_era / 146_096;
    let year_of_era = (day_of_era - leap_days) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day_of_month = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = (month_from_march + 2) % 12 + 1;
    let year = day / DAYS_400_YEARS * 400 + year_of_era + (month <= 2) as u64;
    (year, month, day_of_month)
}

/// The most entries on a page; a longer one would be unusable in a browser as well.
pub(crate) const ENTRIES_MAX: usize = 10_000;

const STYLE: &str = "body{font:1rem/1.4 system-ui,sans-serif;margin:2rem auto;max-width:60rem;padding:0 1rem}\
                     h1{font-size:1.3rem;overflow-wrap:anywhere}table{border-collapse:collapse;width:100%}\
                     th{text-align:left}td,th{padding:.15rem 1rem .15rem 0}td:first-child{overflow-wrap:anywhere}\
                     td+td,th+th{text-align:right;white-space:nowrap}";

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::time::Duration;

    fn listed(files: &[&str], path: &str) -> String {
        let directory = tempfile::tempdir().unwrap();
        for file in files {
            let file = directory.path().join(file);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, "12345").unwrap();
        }
        let root = Root::open(directory.path()).unwrap();
        page(&root, &RequestPath::parse(path).unwrap()).unwrap()
    }

    #[test]
    fn names_are_escaped_sorted_and_hidden() {
        let files = ["b", "a&<b>\"'", "sub/x", ".hidden", "c:d?#%.txt"];
        let page = listed(&files, "/");
        let rows: Vec<_> = page
            .lines()
            .filter_map(|line| line.strip_prefix("<tr><td><a href=\""))
            .map(|line| line.split("</a>").next().unwrap())
            .collect();
        assert_eq!(
            rows,
            [
                "./sub/\">sub/",
                "./a%26%3Cb%3E%22%27\">a&amp;&lt;b&gt;&quot;&#39;",
                "./b\">b",
                "./c%3Ad%3F%23%25.txt\">c:d?#%.txt",
            ]
        );
        assert!(page.contains("<td>5 B</td>"));
    }

    #[test]
    fn only_below_the_root_there_is_a_way_up() {
        assert!(!listed(&["a/b"], "/").contains("../"));
        let page = listed(&["a/b"], "/a/");
        assert!(page.contains("href=\"../\"") && page.contains("<title>/a/</title>"));
    }

    #[test]
    fn deceptive_characters_are_replaced() {
        assert_eq!(escaped(b"a\xffb"), "a\u{fffd}b");
        assert_eq!(
            escaped("a\u{202e}txt.exe\u{1b}".as_bytes()),
            "a\u{fffd}txt.exe\u{fffd}"
        );
    }

    #[test]
    fn sizes() {
        for (bytes, expected) in [
            (0, "0 B"),
            (999, "999 B"),
            (1_000, "1.0 KB"),
            (9_949, "9.9 KB"),
            (9_950, "10 KB"),
            (10_000, "10 KB"),
            (999_499, "999 KB"),
            (999_500, "1.0 MB"),
            (u64::MAX, "18 EB"),
        ] {
            assert_eq!(readable_size(bytes), expected, "{bytes}");
        }
    }

    #[test]
    fn dates() {
        let at = |seconds| date(SystemTime::UNIX_EPOCH + Duration::from_secs(seconds));
        assert_eq!(at(0), "1970-01-01 00:00");
        assert_eq!(at(951_782_340), "2000-02-28 23:59");
        assert_eq!(at(951_782_400), "2000-02-29 00:00");
        assert_eq!(at(4_107_542_400), "2100-03-01 00:00");
        assert_eq!(at(253_402_300_799), "9999-12-31 23:59");
        assert_eq!(date(SystemTime::UNIX_EPOCH - Duration::from_secs(1)), "");
    }

    proptest::proptest! {
        #[test]
        fn dates_as_another_knows_them(seconds in 0u64..253_402_300_800) {
            let time = SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
            // "Sun, 06 Nov 1994 08:49:37 GMT"
            let http = httpdate::fmt_http_date(time);
            let ours = date(time);
            proptest::prop_assert_eq!(&ours[0..4], &http[12..16]);
            proptest::prop_assert_eq!(&ours[8..10], &http[5..7]);
            proptest::prop_assert_eq!(&ours[11..16], &http[17..22]);
            let names = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
            let month: usize = ours[5..7].parse().unwrap();
            proptest::prop_assert_eq!(names[month - 1], &http[8..11]);
        }

        #[test]
        fn no_name_breaks_out(name in proptest::collection::vec(1u8.., 1..30)) {
            let text = escaped(&name);
            proptest::prop_assert!(!text.contains(['<', '>', '"', '\'']));
        }
    }
}
