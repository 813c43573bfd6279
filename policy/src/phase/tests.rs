//! Every combination of record and sightings.
use super::*;
use crate::sample::{definition, domain_name, record, uuid, web};

const STATES: [DomainState; 8] = [
    DomainState::Running,
    DomainState::Blocked,
    DomainState::Paused,
    DomainState::ShuttingDown,
    DomainState::Shutoff,
    DomainState::Crashed,
    DomainState::Suspended,
    DomainState::Unknown,
];

fn sighting(name: &str, number: u32, state: DomainState) -> Sighting {
    Sighting { name: name.to_owned(), uuid: uuid(number), state }
}

#[test]
fn only_a_shut_off_domain_counts_as_stopped() {
    let record = record(&web(), 0, definition());
    for state in STATES {
        let ours = Some(sighting("bcd-web", 0, state));
        let fact = DomainFact::Seen { by_name: ours.clone(), by_uuid: ours };
        let expected = match state {
            DomainState::Shutoff => Phase::Stopped,
            DomainState::Paused => Phase::Paused,
            _ => Phase::Running,
        };
        assert_eq!(Phase::of(&domain_name(), Some(&record), &fact), expected, "{state:?}");
    }
}

#[test]
fn a_domain_is_ours_only_with_name_and_uuid_both_and_seen_both_ways() {
    let record = record(&web(), 0, definition());
    let candidates = [
        None,
        Some(sighting("bcd-web", 0, DomainState::Running)),
        Some(sighting("bcd-web", 1, DomainState::Running)),
        Some(sighting("other", 0, DomainState::Running)),
        Some(sighting("other", 1, DomainState::Running)),
    ];
    for (i, by_name) in candidates.iter().enumerate() {
        for (j, by_uuid) in candidates.iter().enumerate() {
            let fact = DomainFact::Seen { by_name: by_name.clone(), by_uuid: by_uuid.clone() };
            let expected = match (i, j) {
                (0, 0) => Phase::Missing,
                (1, 1) => Phase::Running,
                _ => Phase::Foreign,
            };
            assert_eq!(Phase::of(&domain_name(), Some(&record), &fact), expected, "{fact:?}");
            let without = if (i, j) == (0, 0) { Phase::Absent } else { Phase::Foreign };
            assert_eq!(Phase::of(&domain_name(), None, &fact), without, "{fact:?}");
        }
    }
}

#[test]
fn a_silent_libvirt_leaves_the_phase_unknown() {
    let record = record(&web(), 0, definition());
    for record in [None, Some(&record)] {
        assert_eq!(Phase::of(&domain_name(), record, &DomainFact::Unknown), Phase::Unknown);
    }
}

#[test]
fn phases_have_names_of_their_own() {
    let names: Vec<String> = Phase::ALL.iter().map(ToString::to_string).collect();
    assert_eq!(names, ["absent", "foreign", "missing", "stopped", "running", "paused", "unknown"]);
}
