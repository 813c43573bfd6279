//! Tests of status: names that programs rely on.
use super::*;

#[test]
fn an_unreadable_state_is_named_unknown_and_never_stopped() {
    assert_eq!(serde_json::to_string(&InstanceState::Unknown).expect("json"), "\"unknown\"");
}

#[test]
fn the_name_in_tables_is_the_name_in_json() {
    for state in [
        InstanceState::Absent,
        InstanceState::Stopped,
        InstanceState::Running,
        InstanceState::Paused,
        InstanceState::ShuttingDown,
        InstanceState::Crashed,
        InstanceState::Unknown,
    ] {
        assert_eq!(serde_json::to_value(state).expect("json"), state.as_str());
    }
}
