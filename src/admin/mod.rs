//! The admin interface.
