//! Messages to the client, appended to a buffer of the caller.

use super::event::SubscriptionTag;
use super::{Connection, Phase};
use crate::codec::{END_OF_FRAME, FrameWriter};
use crate::error::EncodeError;
use crate::frame::is_control_header;
use crate::types::{AckMode, Command, Version};
use alloc::vec::Vec;
use thiserror::Error;

/// Why a frame was not written. Nothing has been appended then.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum SendError {
    /// The frame cannot be encoded.
    #[error(transparent)]
    Encode(#[from] EncodeError),
    /// The state of the connection does not allow the frame.
    #[error("the connection does not allow this frame now")]
    NotOpen,
    /// The subscription has ended.
    #[error("there is no such subscription")]
    SubscriptionUnknown,
    /// As many messages as allowed are unacknowledged ([`crate::ConnectionLimits::deliveries_max`]).
    #[error("too many unacknowledged messages")]
    WindowFull,
}

/// Where a message goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Delivery<'m> {
    /// The subscription that gets it.
    pub subscription: SubscriptionTag,
    /// The destination that it was sent to.
    pub destination: &'m str,
    /// What the caller knows the delivery by: [`Connection::settled`] gives it back. Nothing of it is on the
    /// wire.
    pub tag: u64,
}

impl Connection {
    /// Writes a MESSAGE up to its body, which the caller appends with exactly `body_len` bytes before it calls
    /// [`Connection::end_message`]. Nothing else may be written in between.
    ///
    /// Of `headers`, those that the connection writes itself are left out: see
    /// [`crate::frame::is_control_header`].
    ///
    /// # Errors
    /// [`SendError`].
    pub fn message_head<N: AsRef<str>, V: AsRef<str>>(
        &mut self,
        out: &mut Vec<u8>,
        delivery: &Delivery<'_>,
        headers: impl IntoIterator<Item = (N, V)>,
        body_len: usize,
    ) -> Result<(), SendError> {
        if self.phase != Phase::Open {
            return Err(SendError::NotOpen);
        }
        let tag = delivery.subscription;
        let subscription = self.books.subscriptions.live(tag).ok_or(SendError::SubscriptionUnknown)?;
        let acknowledged = subscription.mode != AckMode::Auto;
        if acknowledged
            && self.books.subscriptions.deliveries() >= self.settings.limits.deliveries_max as usize
        {
            return Err(SendError::WindowFull);
        }
        let (session, number) = (self.session, self.books.subscriptions.next_number());
        let mut frame = FrameWriter::new(out, self.version, Command::Message)?;
        frame.content_length(body_len)?;
        frame.optional("subscription", subscription.id.as_deref())?;
        frame.display("message-id", format_args!("{session:016x}-{}-{number}", tag.0))?;
        frame.header("destination", delivery.destination)?;
        if acknowledged && self.version == Version::V12 {
            frame.display("ack", format_args!("{session:016x}-{}-{number}", tag.0))?;
        }
        frame.headers(headers.into_iter().filter(|(name, _)| !is_control_header(name.as_ref())))?;
        frame.end_headers(body_len)?;
        self.books.subscriptions.sent(tag, delivery.tag);
        Ok(())
    }

    /// Ends a MESSAGE behind its body.
    pub fn end_message(&mut self, out: &mut Vec<u8>) {
        out.push(END_OF_FRAME);
        self.end_frame(out);
    }

    /// Writes a whole MESSAGE. Otherwise like [`Connection::message_head`].
    ///
    /// # Errors
    /// [`SendError`].
    pub fn message<N: AsRef<str>, V: AsRef<str>>(
        &mut self,
        out: &mut Vec<u8>,
        delivery: &Delivery<'_>,
        headers: impl IntoIterator<Item = (N, V)>,
        body: &[u8],
    ) -> Result<(), SendError> {
        self.message_head(out, delivery, headers, body.len())?;
        out.extend_from_slice(body);
        self.end_message(out);
        Ok(())
    }

    /// What follows each frame, and the note that something was written.
    pub(super) fn end_frame(&mut self, out: &mut Vec<u8>) {
        if self.settings.options.trailing_lf {
            out.push(b'\n');
        }
        self.wrote = true;
    }
}
