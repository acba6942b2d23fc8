//! A connection to an upstream. It has no task: the future that waits for it drives it.

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

/// A connection that carries one exchange at a time.
pub(super) struct Link {
    /// The half that sends; `None` once a separate task finishes the upload.
    sending: Option<Sending>,
    pub(super) receiving: Receiving,
    /// Whether the connection has carried an exchange before.
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

    /// Returns the half that sends. Panics if it was taken, which ends the use of the connection for requests.
    pub(super) fn sending(&mut self) -> &mut Sending {
        let sending = self.sending.as_mut();
        sending.expect("a link without this half carries no other request")
    }

    /// Sends the request that was begun, and waits for the head of its response, whose fields then replace `fields`.
    /// Returns at the head, even if the request is not sent completely: an upstream may answer early.
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
            // The upstream's time to answer begins when the client has sent the whole request.
            let is_due = sending.is_all_taken();
            self.receiving.poll_head(is_due, fields, cx)
        })
        .await
        // A kept connection may have been closed by the upstream just before the request: not a failure of its health.
        .map_err(|failure| match failure {
            Failure::Closed if self.is_reused => Failure::Stale,
            failure => failure,
        })
    }

    /// Takes the half that sends, if it has more to send. The connection then carries no other request.
    pub(super) fn take_unfinished(&mut self) -> Option<Sending> {
        self.sending.take_if(|sending| sending.has_more())
    }

    /// Returns whether the connection can carry another exchange. Wakes `cx` when that changes, such as when the
    /// upstream closes it.
    pub(super) fn is_idle(&self, cx: &Context<'_>) -> bool {
        let has_sent = self.sending.as_ref().is_some_and(Sending::is_complete);
        has_sent
            && self.receiving.reader.is_reusable()
            && self.receiving.poll_unexpected(cx).is_pending()
    }

    /// Records in the budget whether the connection is idle, and can be closed to make room.
    pub(super) fn set_idle(&self, is_idle: bool) {
        self.receiving.carrier().permit.set_idle(is_idle);
    }

    /// Removes the wakers that [`is_idle`](Self::is_idle) has registered.
    pub(super) fn forget_waiters(&self) {
        self.receiving.carrier().forget_readers();
    }

    /// Returns the socket, its permit, and the bytes that followed a 101 response, after which the connection is a
    /// tunnel.
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
