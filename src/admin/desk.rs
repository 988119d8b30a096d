//! What operators ask about named queues and prepared transactions, on the Unix socket only:
//!
//! `GET /queues`, `GET /queues/peek?queue=&count=`, `POST /queues/{purge,delete}?queue=`, `POST /queues/move?queue=&to=`,
//! `GET /transactions` and `POST /transactions/{commit,rollback}?xid=`. Purging and moving do a part of the work and say how much
//! is left: ask again until nothing is. An answer comes after what it says is durable.

use std::time::Duration;

use axum::extract::{Query, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use serde::{Deserialize, Serialize};
use serde_json::json;
use tokio::sync::{mpsc, oneshot};

/// Requests that may wait for the broker.
const REQUESTS_MAX: usize = 16;
/// Milliseconds that the broker has for one.
const ANSWER_MILLIS_MAX: u64 = 4000;
/// Messages shown by a peek unless it says otherwise.
pub const PEEK_COUNT: usize = 10;

/// A named queue.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct QueueLine {
    /// Its name, without `$queue/`.
    pub name: String,
    /// Unsettled messages.
    pub messages: u64,
    /// Their sizes' sum.
    pub bytes: u64,
    /// Messages under way to consumers or held by prepared transactions.
    pub under_way: u64,
    /// Consumers, subscriptions included.
    pub consumers: u64,
    /// Messages that have joined it since the start.
    pub enqueued: u64,
    /// Messages that consumers took since the start.
    pub taken: u64,
    /// Messages that consumers rejected for good, or that came back too often, since the start.
    pub rejected: u64,
    /// Messages that expired since the start.
    pub expired: u64,
}

/// A message as a peek shows it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Peeked {
    /// Its topic.
    pub topic: String,
    /// When it was published, in milliseconds since 1970.
    pub published: u64,
    /// User properties, in order.
    pub properties: Vec<(String, String)>,
    /// Bytes of its payload.
    pub payload_bytes: u64,
    /// The payload's beginning, if it is text.
    pub text: Option<String>,
}

/// A prepared transaction.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TransactionLine {
    /// Its name.
    pub xid: String,
    /// When it was prepared, in milliseconds since 1970.
    pub since: u64,
    /// Messages that it will publish.
    pub publishes: u64,
    /// Deliveries that it will settle.
    pub settles: u64,
}

/// What is asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Question {
    /// All queues.
    Queues,
    /// The first messages of one.
    Peek(String, usize),
    /// Removes messages that wait.
    Purge(String),
    /// Ends a queue.
    Delete(String),
    /// Moves messages to a queue, or to where they come from.
    Move(String, Option<String>),
    /// Prepared transactions.
    Transactions,
    /// Commits one, or rolls it back.
    Decide(String, bool),
}

/// The answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    /// All queues.
    Queues(Vec<QueueLine>),
    /// Messages, and how many wait.
    Messages(Vec<Peeked>, u64),
    /// Messages dealt with, and how many are left.
    Progress(u64, u64),
    /// Prepared transactions.
    Transactions(Vec<TransactionLine>),
    /// It is as was asked.
    Done,
}

/// A question and where its answer goes; the error is a sentence.
pub type DeskRequest = (Question, oneshot::Sender<Result<Answer, String>>);
/// The driver's end.
pub type DeskRequests = mpsc::Receiver<DeskRequest>;

/// Asks the driver. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Desk {
    requests: mpsc::Sender<DeskRequest>,
}

/// Makes both ends.
#[must_use]
pub fn desk_channel() -> (Desk, DeskRequests) {
    let (requests, receiver) = mpsc::channel(REQUESTS_MAX);
    (Desk { requests }, receiver)
}

impl Desk {
    async fn ask(&self, question: Question) -> Response {
        let (sender, answer) = oneshot::channel();
        let ask = async {
            self.requests.send((question, sender)).await.ok()?;
            answer.await.ok()
        };
        match tokio::time::timeout(Duration::from_millis(ANSWER_MILLIS_MAX), ask).await {
            Ok(Some(Ok(answer))) => Json(answer).into_response(),
            Ok(Some(Err(error))) => (StatusCode::CONFLICT, Json(json!({ "error": error }))).into_response(),
            Ok(None) | Err(_) => {
                let error = "the broker did not answer in time; what was asked may still be done";
                (StatusCode::SERVICE_UNAVAILABLE, Json(json!({ "error": error }))).into_response()
            }
        }
    }
}

#[derive(Deserialize)]
struct Named {
    queue: String,
    to: Option<String>,
    count: Option<usize>,
}

#[derive(Deserialize)]
struct Xid {
    xid: String,
}

/// The routes.
pub(super) fn router(desk: Desk) -> Router {
    Router::new()
        .route("/queues", get(async |State(desk): State<Desk>| desk.ask(Question::Queues).await))
        .route("/queues/peek", get(peek))
        .route("/queues/purge", post(purge))
        .route("/queues/delete", post(delete))
        .route("/queues/move", post(move_messages))
        .route("/transactions", get(async |State(desk): State<Desk>| desk.ask(Question::Transactions).await))
        .route("/transactions/commit", post(commit))
        .route("/transactions/rollback", post(rollback))
        .with_state(desk)
}

async fn peek(State(desk): State<Desk>, Query(asked): Query<Named>) -> Response {
    desk.ask(Question::Peek(asked.queue, asked.count.unwrap_or(PEEK_COUNT))).await
}

async fn purge(State(desk): State<Desk>, Query(asked): Query<Named>) -> Response {
    desk.ask(Question::Purge(asked.queue)).await
}

async fn delete(State(desk): State<Desk>, Query(asked): Query<Named>) -> Response {
    desk.ask(Question::Delete(asked.queue)).await
}

async fn move_messages(State(desk): State<Desk>, Query(asked): Query<Named>) -> Response {
    desk.ask(Question::Move(asked.queue, asked.to)).await
}

async fn commit(State(desk): State<Desk>, Query(asked): Query<Xid>) -> Response {
    desk.ask(Question::Decide(asked.xid, true)).await
}

async fn rollback(State(desk): State<Desk>, Query(asked): Query<Xid>) -> Response {
    desk.ask(Question::Decide(asked.xid, false)).await
}
