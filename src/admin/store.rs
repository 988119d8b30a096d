//! The store's figures and jobs, on the Unix socket only: `GET /store/stats`, `POST /store/verify`, `POST /store/compact`,
//! `POST /store/backup?to=PATH` and `GET /store/job`.
//!
//! A job may take minutes: it runs on a blocking thread, one at a time, and `/store/job` tells how it stands.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use axum::Json;
use axum::Router;
use axum::extract::{Query, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::store::{StoreError, StoreTools};

/// How the last job stands.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Job {
    /// Its name; empty before the first one.
    pub name: String,
    /// It has not ended yet.
    pub running: bool,
    /// What it found, once it has ended well.
    pub result: Option<Value>,
    /// Why it failed.
    pub error: Option<String>,
}

#[derive(Clone)]
struct Desk {
    tools: StoreTools,
    job: Arc<Mutex<Job>>,
}

impl Desk {
    fn job(&self) -> MutexGuard<'_, Job> {
        self.job.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn begin(
        &self,
        name: &str,
        work: impl FnOnce(&StoreTools) -> Result<Value, StoreError> + Send + 'static,
    ) -> Response {
        let mut job = self.job();
        if job.running {
            let error = format!("{} is running: ask again when it has ended", job.name);
            return (StatusCode::CONFLICT, Json(json!({ "error": error }))).into_response();
        }
        *job = Job { name: name.to_owned(), running: true, ..Job::default() };
        let answer = Json(job.clone()).into_response();
        drop(job);
        let desk = self.clone();
        tokio::task::spawn_blocking(move || {
            let done = work(&desk.tools);
            let mut job = desk.job();
            job.running = false;
            match done {
                Ok(result) => job.result = Some(result),
                Err(error) => job.error = Some(error.to_string()),
            }
        });
        answer
    }
}

/// The routes over an open store.
pub(super) fn router(tools: StoreTools) -> Router {
    Router::new()
        .route("/store/stats", get(stats))
        .route("/store/job", get(job))
        .route("/store/verify", post(verify))
        .route("/store/compact", post(compact))
        .route("/store/backup", post(backup))
        .with_state(Desk { tools, job: Arc::default() })
}

async fn stats(State(desk): State<Desk>) -> Json<Value> {
    Json(stats_of(&desk.tools))
}

async fn job(State(desk): State<Desk>) -> Json<Job> {
    Json(desk.job().clone())
}

async fn verify(State(desk): State<Desk>) -> Response {
    desk.begin("verify", verify_in)
}

async fn compact(State(desk): State<Desk>) -> Response {
    desk.begin("compact", compact_in)
}

#[derive(Deserialize)]
struct Target {
    to: PathBuf,
}

async fn backup(State(desk): State<Desk>, Query(target): Query<Target>) -> Response {
    desk.begin("backup", move |tools| backup_in(tools, &target.to))
}

/// All counters of a store.
#[must_use]
pub fn stats_of(tools: &StoreTools) -> Value {
    tools.stats().into_iter().map(|(name, value)| (name.to_owned(), Value::from(value))).collect()
}

/// Checks a store.
///
/// # Errors
/// As the store says.
pub fn verify_in(tools: &StoreTools) -> Result<Value, StoreError> {
    let found = tools.verify()?;
    Ok(json!({
        "queues": found.queues,
        "segments": found.segments,
        "messages": found.messages,
        "bytes": found.bytes,
        "packs": found.packs,
        "rows": found.rows,
        "problem_count": found.problem_count,
        "problems": found.problems,
    }))
}

/// Gives a store's free space back.
///
/// # Errors
/// As the store says.
pub fn compact_in(tools: &StoreTools) -> Result<Value, StoreError> {
    let (before, after) = tools.compact()?;
    Ok(json!({ "file_bytes_before": before, "file_bytes_after": after }))
}

/// Copies a store.
///
/// # Errors
/// As the store says.
pub fn backup_in(tools: &StoreTools, to: &std::path::Path) -> Result<Value, StoreError> {
    if !to.is_absolute() {
        return Err(StoreError::Options(format!("{} is not an absolute path", to.display())));
    }
    let bytes = tools.backup(to)?;
    Ok(json!({ "backup": to.display().to_string(), "file_bytes": bytes }))
}
