//! The end of a conversation: ERROR, then close, always.

use super::event::{ReceiptTag, Violation};
use super::{Connection, Phase};
use crate::codec::FrameWriter;
use crate::error::EncodeError;
use crate::types::{Command, VERSIONS};
use alloc::boxed::Box;
use alloc::string::ToString;
use alloc::vec::Vec;

/// What ERROR tells the client. It must not name what only the server should know.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Failure<'a> {
    /// The `message` header, short.
    pub message: &'a str,
    /// The body, plain text; the message again if it is empty.
    pub detail: &'a str,
}

/// What ERROR says if its message cannot be written in a header.
const UNSPECIFIED: &str = "error";

impl Connection {
    /// Writes what a violation calls for and ends the conversation: ERROR, with the receipt of the frame that
    /// has caused it. Receipts of earlier frames are written first if they are not long in coming; see
    /// [`Connection::is_closed`]. Does nothing once the conversation is ending.
    pub fn reject(&mut self, out: &mut Vec<u8>, violation: &Violation, now: u64) {
        if matches!(self.phase, Phase::Closing | Phase::Closed) {
            return;
        }
        let receipt = self.books.faulty_receipt.take();
        let message = violation.to_string();
        let unsupported = *violation == Violation::UnsupportedVersion;
        let detail = if unsupported { "Supported protocol versions are 1.0, 1.1 and 1.2" } else { "" };
        let versions = unsupported.then_some(VERSIONS);
        let failure = Failure { message: &message, detail };
        self.close_with(out, &failure, receipt.as_deref(), versions, now);
    }

    /// Writes ERROR and ends the conversation: the login is refused, a frame cannot be processed, or the server
    /// wants to part. `receipt` is that of the frame at fault; it goes into ERROR, and receipts of later frames
    /// are never written. Those of earlier frames are written first if they are not long in coming; see
    /// [`Connection::is_closed`]. Does nothing if ERROR was written or waits already.
    pub fn fail(&mut self, out: &mut Vec<u8>, receipt: Option<ReceiptTag>, failure: &Failure<'_>, now: u64) {
        if self.phase == Phase::Closed || self.books.last_words.is_some() {
            return;
        }
        let receipt = receipt.and_then(|tag| self.books.receipts.cut(tag));
        self.close_with(out, failure, receipt.as_deref(), None, now);
    }

    fn close_with(
        &mut self,
        out: &mut Vec<u8>,
        failure: &Failure<'_>,
        receipt: Option<&str>,
        versions: Option<&str>,
        now: u64,
    ) {
        let mut error = Vec::new();
        if self.write_error(&mut error, failure, receipt, versions).is_err() {
            // Only the texts of the caller can be at fault: a receipt has come out of a header.
            let plain = Failure { message: UNSPECIFIED, detail: UNSPECIFIED };
            let _ = self.write_error(&mut error, &plain, receipt, versions);
        }
        self.books.last_words = Some(error.into_boxed_slice());
        self.phase = Phase::Closing;
        self.since_ms = now;
        self.flush_receipts(out);
    }

    fn write_error(
        &self,
        out: &mut Vec<u8>,
        failure: &Failure<'_>,
        receipt: Option<&str>,
        versions: Option<&str>,
    ) -> Result<(), EncodeError> {
        let message = if failure.message.is_empty() { UNSPECIFIED } else { failure.message };
        let body = if failure.detail.is_empty() { message } else { failure.detail };
        let mut frame = FrameWriter::new(out, self.version, Command::Error)?;
        frame.content_length(body.len())?;
        frame.header("content-type", "text/plain")?;
        frame.optional("receipt-id", receipt)?;
        frame.optional("version", versions)?;
        frame.header("message", message)?;
        frame.end(body.as_bytes())
    }

    /// Notes that the frame with this receipt is processed, and writes the receipts that can leave: its own as
    /// soon as those before it have left. Returns whether the receipt was due.
    pub fn receipt(&mut self, out: &mut Vec<u8>, tag: ReceiptTag) -> bool {
        let due = self.books.receipts.complete(tag);
        if due {
            self.flush_receipts(out);
        }
        due
    }

    /// Receipts that are due and not written.
    pub fn receipts_pending(&self) -> usize {
        self.books.receipts.len()
    }

    fn flush_receipts(&mut self, out: &mut Vec<u8>) {
        while let Some(id) = self.books.receipts.pop_done() {
            self.write_receipt(out, &id);
        }
        if self.phase == Phase::Closing && self.books.receipts.is_empty() {
            self.close(out);
        }
    }

    fn write_receipt(&mut self, out: &mut Vec<u8>, id: &str) {
        let written = FrameWriter::new(out, self.version, Command::Receipt).and_then(|mut frame| {
            frame.header("receipt-id", id)?;
            frame.end(b"")
        });
        // What came out of a header goes into one.
        debug_assert!(written.is_ok());
        self.end_frame(out);
    }

    /// Nothing more is read. The conversation is over when the last receipt is written.
    pub(super) fn end_reading(&mut self) {
        self.phase = if self.books.receipts.is_empty() { Phase::Closed } else { Phase::Closing };
    }

    /// Writes ERROR, if there is one, without waiting for receipts any longer.
    pub(super) fn close(&mut self, out: &mut Vec<u8>) {
        self.books.receipts.clear();
        if let Some(error) = self.books.last_words.take() {
            out.extend_from_slice(&error);
            self.end_frame(out);
        }
        self.phase = Phase::Closed;
    }

    /// Keeps the receipt that a faulty frame asks for, until [`Connection::reject`].
    pub(super) fn keep_faulty_receipt(&mut self, id: Option<impl Into<Box<str>>>) {
        self.books.faulty_receipt = id.map(Into::into);
    }
}
