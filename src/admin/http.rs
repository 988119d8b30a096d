//! What there is to ask: `/health`, `/health/live`, `/health/ready`, `/metrics` and `/status`. Everything else gets a JSON
//! answer that lists these.

use axum::Json;
use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use serde_json::json;

use super::StatusSource;
use super::metrics;
use super::status::{Health, HealthState};

/// Every path that exists.
pub(super) const PATHS: [&str; 5] = ["/health", "/health/live", "/health/ready", "/metrics", "/status"];

/// The routes over `source`.
pub(super) fn router(source: StatusSource) -> Router {
    Router::new()
        .route("/health", get(health))
        .route("/health/live", get(health))
        .route("/health/ready", get(health_ready))
        .route("/metrics", get(metrics_text))
        .route("/status", get(status))
        .fallback(unknown_path)
        .method_not_allowed_fallback(wrong_method)
        .with_state(source)
}

async fn health(State(source): State<StatusSource>) -> Response {
    let health = current_health(&source).await;
    health_response(&health, health.state.is_live())
}

async fn health_ready(State(source): State<StatusSource>) -> Response {
    let health = current_health(&source).await;
    health_response(&health, health.state.is_ready())
}

async fn current_health(source: &StatusSource) -> Health {
    match source.status().await {
        Ok(status) => status.health,
        Err(error) => Health { state: HealthState::NotLive, reasons: vec![error.to_string()] },
    }
}

fn health_response(health: &Health, well: bool) -> Response {
    let code = if well { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    (code, Json(health)).into_response()
}

async fn metrics_text(State(source): State<StatusSource>) -> Response {
    match source.status().await {
        Ok(status) => {
            ([(header::CONTENT_TYPE, metrics::CONTENT_TYPE)], metrics::render(status)).into_response()
        }
        Err(error) => unavailable(&error.to_string()),
    }
}

async fn status(State(source): State<StatusSource>) -> Response {
    match source.status().await {
        Ok(status) => Json(status).into_response(),
        Err(error) => unavailable(&error.to_string()),
    }
}

fn unavailable(error: &str) -> Response {
    (StatusCode::SERVICE_UNAVAILABLE, Json(json!({ "error": error }))).into_response()
}

async fn unknown_path(uri: Uri) -> Response {
    let error = format!("there is nothing at {}", uri.path());
    (StatusCode::NOT_FOUND, Json(json!({ "error": error, "paths": PATHS }))).into_response()
}

async fn wrong_method() -> Response {
    let error = "everything here is read with GET";
    (StatusCode::METHOD_NOT_ALLOWED, Json(json!({ "error": error, "paths": PATHS }))).into_response()
}
