//! Tests of the reflection.
