//! `--check`: finds mistakes that would prevent a start.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use crate::server::{Server, directory, softclock};
use crate::tls;

/// Checks `serve` with these options, and returns the exit status and the output.
fn check(options: &[&str], site: Option<&Path>) -> (Option<i32>, String) {
    let mut command = softclock();
    let command = command.args(["serve", "--check"]).args(options).args(site);
    let output = command.output().unwrap();
    (
        output.status.code(),
        String::from_utf8(output.stderr).unwrap(),
    )
}

/// Checks that one line with all `parts` refuses the options.
fn refused(options: &[&str], site: Option<&Path>, parts: &[&str]) {
    let (code, line) = check(options, site);
    assert_eq!((code, line.lines().count()), (Some(1), 1), "{line}");
    for part in parts {
        assert!(line.contains(part), "{part} in {line}");
    }
}

#[test]
fn error_pages_that_cannot_be_read_are_named() {
    let directory = directory(&[("site/errors/404.html", b"gone"), ("outside.html", b"x")]);
    let site = directory.path().join("site");
    symlink("../../outside.html", site.join("errors/500.html")).unwrap();
    let good = "--error-page=404=/errors/404.html";
    assert_eq!(check(&[good], Some(&site)), (Some(0), String::new()));
    for (page, advice) in [
        ("500=/errors/none.html", "create it, or leave the page out"),
        ("500=/errors/404.html/x", "create it, or leave the page out"),
        ("500=/errors", "it is no regular file; name one"),
        ("500=/errors/500.html", "put a copy there"),
    ] {
        let option = format!("--error-page={page}");
        let name = format!("cannot show the error page {page}: ");
        refused(&[good, &option], Some(&site), &[&name, advice]);
    }
    refused(&[good], None, &["404.html", "name a directory to serve"]);

    // The server starts anyway, and sends its own page.
    let server = Server::start(Some(&site), &["--error-page=404=/errors/none.html"]);
    assert!(server.connect().get("/x").text().starts_with("404 "));
}

#[test]
fn an_error_page_in_the_file_is_checked() {
    let directory = directory(&[("site/a", b"a")]);
    let file = directory.path().join("softclock.toml");
    let text = format!(
        "listen = \":1\"\ndirectory = \"{}\"\nerror-page = \"404=/none.html\"\n",
        directory.path().join("site").display()
    );
    fs::write(&file, text).unwrap();
    let config = file.display().to_string();
    refused(&["--config", &config], None, &["404=/none.html", "no such"]);
}

#[test]
fn a_certificate_and_an_address_with_tls_need_each_other() {
    let directory = tls::with_site(&[("site/a", b"a")]);
    let path = |name| directory.path().join(name).display().to_string();
    let [cert, key] = ["cert.pem", "key.pem"].map(path);
    let certificate = ["--tls-cert", &*cert, "--tls-key", &*key];
    let site = directory.path().join("site");
    let with = |listen: &[&'static str]| [listen, &certificate[..]].concat();
    let both = ["--listen=:1", "--listen=tls::2"];
    assert_eq!(check(&with(&both), Some(&site)).0, Some(0));
    for plain in [&[][..], &["--listen=:1", "--listen=unix:/run/x"]] {
        let advice = [
            "cannot use the certificate: no address",
            "tls::443",
            "--tls-cert",
        ];
        refused(&with(plain), Some(&site), &advice);
    }
    let advice = ["listen on tls::2: TLS needs a certificate", "--tls-cert"];
    refused(&both, Some(&site), &advice);
}

#[test]
fn settings_without_effect_are_refused() {
    let directory = directory(&[("site/a", b"a")]);
    let site = directory.path().join("site");
    for (options, site, part) in [
        (&["--pace-quantum", "4kb"][..], Some(&*site), "--pace"),
        (&["--index", "start.htm"], None, "<DIR>"),
        (&["--listing"], None, "<DIR>"),
    ] {
        let (code, line) = check(options, site);
        assert_eq!((code, line.lines().count()), (Some(2), 1), "{line}");
        assert!(line.contains(part), "{line}");
    }
    for rate in ["--pace", "--pace-total"] {
        let options = [rate, "1mbit", "--pace-quantum", "4kb"];
        assert_eq!(check(&options, None), (Some(0), String::new()));
    }
    let options = ["--index", "start.htm", "--listing"];
    assert_eq!(check(&options, Some(&site)), (Some(0), String::new()));

    // Each needs a setting of the file.
    let file = directory.path().join("softclock.toml");
    let text = format!(
        "listen = \":1\"\ndirectory = \"{}\"\npace-total = \"1mbit\"\n",
        site.display()
    );
    fs::write(&file, text).unwrap();
    let config = file.display().to_string();
    let options = ["--config", &config, "--pace-quantum", "4kb", "--listing"];
    assert_eq!(check(&options, None), (Some(0), String::new()));
}
