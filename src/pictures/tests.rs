//! Pictures of fixed traces, as text and as HTML.
