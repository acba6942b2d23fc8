//! Adapts the header fields of responses for the client.

use http::header::{CONNECTION, Entry, HeaderMap, HeaderName, HeaderValue, UPGRADE, VIA};

use super::{Named, is_hop_by_hop, may_be_trailer};

/// Adapts the fields of a response for the client: removes those of the upstream's connection, and appends `via` to
/// Via. Keeps Upgrade if `upgrades`, that is, if the connection becomes a tunnel, or the client is to ask for that.
pub(in crate::proxy) fn prepare_response(
    headers: &mut HeaderMap,
    via: &HeaderValue,
    upgrades: bool,
) {
    let protocol = match upgrades {
        true => headers.get(UPGRADE).cloned(),
        false => None,
    };
    remove_hop_by_hop(headers);
    append_via(headers, via);
    if let Some(protocol) = protocol {
        headers.insert(UPGRADE, protocol);
        headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
    }
}

/// Removes the fields that concern one connection only, and those that Connection names.
fn remove_hop_by_hop(headers: &mut HeaderMap) {
    // Most messages have at most one such field, and a pass over the names is cheaper than a removal of each.
    let mut present: Vec<HeaderName> = Vec::new();
    let known = headers.keys().filter(|name| is_hop_by_hop(name.as_str()));
    present.extend(known.cloned());
    if present.contains(&CONNECTION) {
        let named = Named::of(headers);
        let names = named.0.iter();
        present.extend(names.filter_map(|name| HeaderName::from_bytes(name).ok()));
    }
    for name in present {
        headers.remove(name);
    }
}

/// Removes fields that may not be trailers; returns `None` if no field remains. HTTP/2 treats such fields as an error,
/// and intermediaries may merge them into the head.
pub(in crate::proxy) fn prepare_trailers(mut trailers: HeaderMap) -> Option<HeaderMap> {
    let names = trailers.keys();
    let refused: Vec<HeaderName> = names
        .filter(|name| !may_be_trailer(name.as_str()))
        .cloned()
        .collect();
    for name in refused {
        trailers.remove(name);
    }
    (!trailers.is_empty()).then_some(trailers)
}

/// Appends an element to Via, and joins several Via fields into one.
fn append_via(headers: &mut HeaderMap, last: &HeaderValue) {
    match headers.entry(VIA) {
        Entry::Vacant(entry) => drop(entry.insert(last.clone())),
        Entry::Occupied(mut entry) => {
            let values: Vec<_> = entry
                .iter()
                .chain([last])
                .map(HeaderValue::as_bytes)
                .collect();
            let all = HeaderValue::from_bytes(&values.join(&b", "[..]));
            entry.insert(all.expect("values and a separator are a value"));
        }
    }
}
