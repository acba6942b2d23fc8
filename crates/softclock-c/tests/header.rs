//! `include/softclock.h` is what cbindgen makes of the library: its declarations with their documentation, a section
//! for each file.

use std::fs;
use std::path::{Path, PathBuf};

use cbindgen::{Builder, Config, DocumentationStyle, Language, SortKey, Style};

/// The beginning of the header, up to the first section.
const BEGINNING: &str = include_str!("header/beginning.h");

/// The sections: the title of each, and the file whose declarations it has.
const SECTIONS: [(&str, &str); 6] = [
    ("The library", "library.rs"),
    ("Timers", "timers.rs"),
    ("Descriptors that end waits", "wake.rs"),
    ("Rate clocks", "rate_clock.rs"),
    ("Byte clocks", "byte_clock.rs"),
    ("Send queues", "send_queue.rs"),
];

const END: &str = "
#ifdef __cplusplus
}
#endif

#endif
";

#[test]
fn the_header_declares_what_the_library_defines() {
    let header = in_crate("include/softclock.h");
    let generated = generated();
    if std::env::var_os("UPDATE_HEADER").is_some() {
        fs::write(&header, &generated).unwrap();
    }
    let stored = fs::read_to_string(&header).unwrap();
    assert!(
        stored == generated,
        "softclock.h is not what cbindgen makes of the library. To renew it: \
         UPDATE_HEADER=1 cargo test --package softclock-c --test header"
    );
}

#[test]
fn each_file_that_exports_has_a_section() {
    let files = fs::read_dir(in_crate("src")).unwrap();
    for file in files.map(|file| file.unwrap()) {
        let text = fs::read_to_string(file.path()).unwrap();
        let has_section = SECTIONS.iter().any(|(_, name)| file.file_name() == *name);
        assert_eq!(text.contains("no_mangle"), has_section, "{file:?}");
    }
}

/// Returns the header of the library as it is.
fn generated() -> String {
    let sections =
        SECTIONS.map(|(title, file)| format!("\n/* {title} */\n\n{}", declarations(file)));
    format!("{BEGINNING}{}{END}", sections.concat())
}

/// Returns the declarations of what a file defines for C.
fn declarations(file: &str) -> String {
    let mut config = Config {
        language: Language::C,
        style: Style::Both,
        no_includes: true,
        usize_is_size_t: true,
        documentation_style: DocumentationStyle::Doxy,
        sort_by: SortKey::None,
        line_length: 120,
        tab_width: 4,
        ..Config::default()
    };
    // No function takes it by its type, so cbindgen would leave it out.
    config.export.include = vec!["softclock_state".to_owned()];
    let path = in_crate("src").join(file);
    let made = Builder::new().with_config(config).with_src(path).generate();
    let mut text = Vec::new();
    made.expect("source that cbindgen understands")
        .write(&mut text);
    String::from_utf8(text).expect("text")
}

fn in_crate(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}
