//! Decides every privileged request of bcd.
//!
//! Room: `policy`. The answer, a [`Grant`] or a [`Denial`], depends on the arguments alone. No I/O, no clock, no unsafe,
//! no panic. A grant's effects have private fields and only this crate builds them, so an executor cannot be handed anything
//! that was not decided here.
//!
//! Read in this order: [`table`] (who may ask what in which phase), [`decide`](mod@decide) (the pipeline),
//! [`judge`] (the checks of each verb), [`denial`] (the rules), [`xml`] (what root renders).
//!
//! ```text
//! request ──▶ questions ──▶ the helper looks ──▶ facts ──▶ decide ──▶ Grant{intent, effect} ──▶ settle(outcome)
//!                 │                                          │
//!                 └────────────── Denial{rule, detail} ◀─────┘
//! ```
#![forbid(unsafe_code)]
#![deny(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects
)]
#![cfg_attr(
    test,
    allow(
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::panic,
        clippy::indexing_slicing,
        clippy::arithmetic_side_effects,
        clippy::wildcard_enum_match_arm
    )
)]

pub mod decide;
pub mod denial;
pub mod effect;
pub mod facts;
pub mod judge;
pub mod name;
pub mod phase;
pub mod record;
#[cfg(test)]
mod sample;
pub mod table;
pub mod xml;

pub use decide::{Peer, Setting, decide, questions, reconcile};
pub use denial::{Denial, Rule};
pub use effect::{Effect, Grant, Outcome, Settled};
pub use facts::{
    DomainFact, DomainQuestion, DomainState, Facts, FileFact, FileQuestion, FileRole, Questions, Sighting,
};
pub use name::{DataPath, DomainName, TapName, TapStem};
pub use phase::Phase;
pub use record::{Intent, Record, RecordChange, Records};
