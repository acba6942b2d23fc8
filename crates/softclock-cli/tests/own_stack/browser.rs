//! A browser that loads a page with its resources, over several connections at a time.

use std::fmt::Write as _;
use std::fs;
use std::process::Output;

use softclock_testing::{noise, require};

use crate::lab::{ADDRESS, Carrier, Lab, lab};

#[test]
fn chromium_gets_a_page_with_all_of_its_resources() {
    require!("chromium", "timeout");
    for carrier in Carrier::ALL {
        let lab = lab!(carrier);
        // The browser gives up requests when an address of its host changes, as when IPv6 has confirmed one.
        let disabled = lab.client().disable_ipv6();
        disabled.expect("nsenter is installed");
        let expected = write_page(&lab);
        let _server = lab.serve(&[]);
        let output = load(&lab);
        let document = String::from_utf8_lossy(&output.stdout);
        let (_, behind) = document.split_once("<pre>").unwrap_or_default();
        let (report, _) = behind.split_once("</pre>").unwrap_or_default();
        let mut report: Vec<_> = report.lines().collect();
        report.sort_unstable();
        assert_eq!(report, expected, "{carrier:?}: {output:?}");
    }
}

/// Runs the browser, which writes the document after its scripts have changed it.
fn load(lab: &Lab) -> Output {
    let profile = lab.path("profile").display().to_string();
    // Time that passes for the page stands still while resources are on their way, so the browser waits for all.
    let options =
        "--headless --no-sandbox --disable-gpu --disable-dev-shm-usage --virtual-time-budget=60000";
    let mut command = lab.at_client(&format!(
        "timeout --kill-after=5 120 chromium {options} --user-data-dir={profile} --dump-dom http://{ADDRESS}/page.html"
    ));
    command.env("HOME", &profile);
    command.output().expect("nsenter is installed")
}

/// Writes a page with its resources; returns the sorted lines that its script is to write.
fn write_page(lab: &Lab) -> Vec<String> {
    let write = |name: &str, bytes: &[u8]| fs::write(lab.path(name), bytes).expect("a directory");
    write("page.html", PAGE.as_bytes());
    write("style.css", b"pre { color: rgb(1, 2, 3); }");
    write("picture.svg", PICTURE.as_bytes());
    let mut names = String::new();
    let mut expected: Vec<_> = (0..PARTS)
        .map(|number| {
            let bytes = noise(number * number * 10_000 + number);
            let name = format!("part-{number}");
            write(&name, &bytes);
            write!(names, "{name:?}, ").expect("a string");
            format!("{name}: 200 {} {}", bytes.len(), fnv_1a(&bytes))
        })
        .collect();
    write("script.js", SCRIPT.replace("NAMES", &names).as_bytes());
    expected.push("picture: 70 50".into());
    expected.push("style: rgb(1, 2, 3)".into());
    expected.sort_unstable();
    expected
}

/// The checksum that the script computes.
fn fnv_1a(bytes: &[u8]) -> u32 {
    let step = |hash: u32, &byte: &u8| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193);
    bytes.iter().fold(0x811c_9dc5, step)
}

/// More than the connections that a browser has to a server at a time. The longest has 2 MB.
const PARTS: usize = 15;

const PAGE: &str = r#"<!DOCTYPE html>
<link rel="icon" href="data:,">
<link rel="stylesheet" href="style.css">
<pre></pre>
<img src="picture.svg">
<script src="script.js"></script>
"#;

const PICTURE: &str = r#"<svg xmlns="http://www.w3.org/2000/svg" width="70" height="50"/>"#;

const SCRIPT: &str = r#"
const lines = document.querySelector("pre");
const report = (line) => { lines.textContent += line + "\n"; };

const check = async (name) => {
    const response = await fetch(name);
    const bytes = new Uint8Array(await response.arrayBuffer());
    let hash = 0x811c9dc5;
    for (const byte of bytes) {
        hash = Math.imul(hash ^ byte, 0x01000193) >>> 0;
    }
    report(`${name}: ${response.status} ${bytes.length} ${hash}`);
};

window.addEventListener("load", () => {
    const picture = document.querySelector("img");
    report(`picture: ${picture.naturalWidth} ${picture.naturalHeight}`);
    report(`style: ${getComputedStyle(lines).color}`);
});
for (const name of [NAMES]) {
    check(name).catch((error) => report(`${name}: ${error}`));
}
"#;
