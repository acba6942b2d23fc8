//! A connection to an upstream, driven by whoever waits for it.

use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::header::HeaderMap;

use super::budget::{CountedCarrier, UpstreamPermit};
use super::failure::Failure;
use super::receiving::Receiving;
use super::sending::Sending;
use super::upload::Upload;
use crate::net::carrier::Stream;
use crate::syntax::response::Head;

/// A connection, with one exchange at a time.
pub(super) struct Link {
    /// Nothing while an upload goes on by itself.
    sending: Option<Sending>,
    pub(super) receiving: Receiving,
    /// It has carried an exchange before.
    pub(super) is_reused: bool,
}

impl Link {
    pub(super) fn new(carrier: CountedCarrier) -> Box<Self> {
        let carrier = Rc::new(carrier);
        Box::new(Self {
            sending: Some(Sending::new(Rc::clone(&carrier))),
            receiving: Receiving::new(carrier),
            is_reused: false,
        })
    }

    /// The half that sends.
    pub(super) fn sending(&mut self) -> &mut Sending {
        let sending = self.sending.as_mut();
        sending.expect("a link without this half carries no other request")
    }

    /// Sends the request that was begun, and waits for the head of its response; its fields then replace `fields`.
    pub(super) async fn exchange(
        &mut self,
        upload: &mut Option<Box<Upload>>,
        fields: &mut HeaderMap,
    ) -> Result<Head, Failure> {
        poll_fn(|cx| {
            let sending = self.sending.as_mut();
            let sending = sending.expect("a link without this half carries no other request");
            if let Poll::Ready(Err(failure)) = sending.poll_send(upload, cx) {
                return Poll::Ready(Err(failure));
            }
            let is_due = sending.is_all_taken();
            self.receiving.poll_head(is_due, fields, cx)
        })
        .await
        .map_err(|failure| match failure {
            Failure::Closed if self.is_reused => Failure::Stale,
            failure => failure,
        })
    }

    /// Takes the half that sends, if there is more to send. Without it the connection carries no other request.
    pub(super) fn take_unfinished(&mut self) -> Option<Sending> {
        self.sending.take_if(|sending| sending.has_more())
    }

    /// Whether it can carry another exchange, as far as is known. `cx` is told when that changes.
    pub(super) fn is_idle(&self, cx: &Context<'_>) -> bool {
        let has_sent = self.sending.as_ref().is_some_and(Sending::is_complete);
        has_sent
            && self.receiving.reader.is_reusable()
            && self.receiving.poll_unexpected(cx).is_pending()
    }

    /// Says whether the connection is kept for the next request, and can be closed for another.
    pub(super) fn set_idle(&self, is_idle: bool) {
        self.receiving.carrier().permit.set_idle(is_idle);
    }

    /// Whoever was to be told of a change is not.
    pub(super) fn forget_waiters(&self) {
        self.receiving.carrier().forget_readers();
    }

    /// The socket, its permit, and what was read from it, after the response that ends HTTP there.
    pub(super) fn into_stream(self: Box<Self>) -> (Stream, UpstreamPermit, Bytes) {
        let Self {
            sending,
            mut receiving,
            ..
        } = *self;
        drop(sending);
        let early = receiving.take_first();
        let carrier = Rc::into_inner(receiving.into_carrier());
        let CountedCarrier { carrier, permit } =
            carrier.expect("no upload, as a request for an upgrade has no body");
        (Stream::Plain(carrier), permit, early)
    }
}
