//! Tests of the codec: pinned bytes, hostile datagrams, arbitrary messages.
