//! Several ranges in one response.

use softclock_http::Site;

use crate::visitor::{Response, Visitor, directory, noise};

/// Returns the parts of a multipart/byteranges body: first byte and content.
fn parts(response: &Response, length: usize) -> Vec<(usize, Vec<u8>)> {
    assert_eq!(response.status, 206);
    assert_eq!(response.header("content-range"), None);
    let kind = response.header("content-type").unwrap();
    let boundary = kind
        .strip_prefix("multipart/byteranges; boundary=")
        .unwrap();
    let mut rest = &response.body[..];
    let mut found = Vec::new();
    let take = |rest: &mut &[u8], expected: String| {
        let tail = rest.strip_prefix(expected.as_bytes());
        *rest = tail.unwrap_or_else(|| panic!("not {expected:?}"));
    };
    take(&mut rest, format!("--{boundary}"));
    while !rest.starts_with(b"--") {
        take(
            &mut rest,
            "\r\nContent-Type: application/octet-stream\r\nContent-Range: bytes ".into(),
        );
        let line_end = rest.iter().position(|&byte| byte == b'\r').unwrap();
        let line = std::str::from_utf8(&rest[..line_end]).unwrap();
        let (range, total) = line.split_once('/').unwrap();
        assert_eq!(total.parse(), Ok(length));
        let (first, last) = range.split_once('-').unwrap();
        let (first, last): (usize, usize) = (first.parse().unwrap(), last.parse().unwrap());
        rest = &rest[line_end + 4..];
        let (content, tail) = rest.split_at(last - first + 1);
        found.push((first, content.to_vec()));
        rest = tail;
        take(&mut rest, format!("\r\n--{boundary}"));
    }
    assert_eq!(rest, b"--\r\n");
    found
}

#[test]
fn parts_come_as_they_were_asked_for() {
    let (small, big) = (noise(20_000), noise(2_000_000));
    let files: &[(&str, &[u8])] = &[("small", &small), ("big", &big)];
    let directory = directory(files);
    let client = Visitor::of(Site::directory(directory.path()).unwrap());
    for _ in 0..2 {
        for (target, content, ranges, expected) in [
            (
                "/small",
                &small,
                "0-9,100-199,-5",
                vec![(0, 9), (100, 199), (19_995, 19_999)],
            ),
            ("/small", &small, "500-600,0-0", vec![(500, 600), (0, 0)]),
            (
                "/small",
                &small,
                "0-10,11-20,15-30,90-99,99999-",
                vec![(0, 30), (90, 99)],
            ),
            (
                "/big",
                &big,
                "1-900000,1000000-1999998",
                vec![(1, 900_000), (1_000_000, 1_999_998)],
            ),
            (
                "/big",
                &big,
                "65535-65536,0-0",
                vec![(65_535, 65_536), (0, 0)],
            ),
        ] {
            let response = client.request("GET", target, &[&format!("Range: bytes={ranges}")]);
            let found = parts(&response, content.len());
            assert_eq!(found.len(), expected.len(), "{ranges}");
            for ((at, part), (first, last)) in found.iter().zip(expected) {
                assert!(*at == first && *part == content[first..=last], "{ranges}");
            }
        }
    }
    let head = client.request("HEAD", "/big", &["Range: bytes=0-1,5-6"]);
    assert_eq!(
        (head.status, head.header("content-length")),
        (200, Some("2000000"))
    );
}

#[test]
fn tricks_get_the_whole() {
    let content = noise(100_000);
    let directory = directory(&[("f", &content)]);
    let client = Visitor::of(Site::directory(directory.path()).unwrap());
    let many: Vec<_> = (0..17).map(|n| format!("{}-{}", n * 10, n * 10)).collect();
    let thousands = vec!["0-"; 5_000].join(",");
    let halves: Vec<_> = (0..16)
        .map(|n| format!("{}-{}", n * 6_250, n * 6_250 + 6_248))
        .collect();
    for (ranges, status) in [
        (many.join(","), 200),
        (many[..16].join(","), 206),
        (thousands, 206),
        (halves.join(","), 200),
        ("0-1,x".into(), 200),
        ("100000-,200000-".into(), 416),
    ] {
        let response = client.request("GET", "/f", &[&format!("Range: bytes={ranges}")]);
        assert_eq!(response.status, status, "{ranges:.40}");
        if status == 200 {
            assert!(response.body == content);
        }
    }
}
