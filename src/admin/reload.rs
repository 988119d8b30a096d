//! `POST /reload`, on the Unix socket only: whoever may open the socket may have the configuration read again.
//!
//! Bounds: [`RELOAD_REQUESTS_MAX`] requests that wait for the driver, [`RELOAD_MILLIS_MAX`] for its answer.

use std::time::Duration;

use axum::Json;
use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use serde::{Deserialize, Serialize};
use serde_json::json;
use tokio::sync::{mpsc, oneshot};

/// Requests that may wait for the driver.
pub const RELOAD_REQUESTS_MAX: usize = 4;
/// Milliseconds that the driver has to answer one.
pub const RELOAD_MILLIS_MAX: u64 = 4000;

/// What is in force after a reload.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReloadReport {
    /// Users of the password file; `None`: there is none.
    pub users: Option<u64>,
    /// Rules of the ACL file; `None`: there is none.
    pub rules: Option<u64>,
    /// What is logged.
    pub log_level: String,
    /// Sections that have changed and are read at start alone.
    pub needs_restart: Vec<String>,
    /// What is allowed but doubtful.
    pub warnings: Vec<String>,
}

/// The driver's answer: what is in force now, or why everything stayed as it was.
pub type ReloadAnswer = oneshot::Sender<Result<ReloadReport, String>>;

/// The driver's end of the request channel.
pub type ReloadRequests = mpsc::Receiver<ReloadAnswer>;

/// Asks the driver to read the configuration again.
#[derive(Clone, Debug)]
pub struct ReloadSource {
    requests: mpsc::Sender<ReloadAnswer>,
}

/// Makes both ends of the request channel.
#[must_use]
pub fn reload_channel() -> (ReloadSource, ReloadRequests) {
    let (requests, receiver) = mpsc::channel(RELOAD_REQUESTS_MAX);
    (ReloadSource { requests }, receiver)
}

/// The route.
pub(super) fn router(source: ReloadSource) -> Router {
    Router::new().route("/reload", post(reload)).with_state(source)
}

async fn reload(State(source): State<ReloadSource>) -> Response {
    let (sender, answer) = oneshot::channel();
    let ask = async {
        source.requests.send(sender).await.ok()?;
        answer.await.ok()
    };
    match tokio::time::timeout(Duration::from_millis(RELOAD_MILLIS_MAX), ask).await {
        Ok(Some(Ok(report))) => Json(report).into_response(),
        Ok(Some(Err(error))) => {
            (StatusCode::UNPROCESSABLE_ENTITY, Json(json!({ "error": error }))).into_response()
        }
        Ok(None) => unavailable("the broker has stopped"),
        Err(_) => unavailable("the broker did not answer in time; its log tells what became of the reload"),
    }
}

fn unavailable(error: &str) -> Response {
    (StatusCode::SERVICE_UNAVAILABLE, Json(json!({ "error": error }))).into_response()
}
