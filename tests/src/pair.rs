//! Helper, node and image server together, driven through the command line as an operator does.
//!
//! Room: `tests`.
use crate::daemons::{self, Daemon, bin};
use crate::domains::Cleaner;
use crate::guest;
use crate::images::ImageServer;
pub use crate::operator::{Operator, Wish};
use crate::place::Place;
use std::fs;
use std::ops::Deref;

/// A running pair and what it needs; what an operator can do with it is [`Operator`]'s.
#[derive(Debug)]
pub struct Pair {
    /// The helper, while it runs.
    pub helper: Option<Daemon>,
    /// The node, while it runs.
    pub node: Option<Daemon>,
    /// Where images come from.
    pub images: ImageServer,
    operator: Operator,
    _cleaner: Cleaner,
    /// Its directories; dropped last.
    pub place: Place,
}

impl Deref for Pair {
    type Target = Operator;

    fn deref(&self) -> &Operator {
        &self.operator
    }
}

impl Pair {
    /// Starts a pair with the guest image at its server. `helper_keys` are lines of `[helper]`. `None`: there is no guest
    /// image, and why was printed.
    ///
    /// # Panics
    /// When a part does not come up.
    #[must_use]
    pub fn start(name: &str, instances: &[&str], helper_keys: &str) -> Option<Self> {
        let image = guest::image(name)?;
        let place = Place::new(name);
        let served = place.root().join("served");
        fs::create_dir(&served).expect("make a directory");
        fs::copy(&image, served.join("guest.qcow2")).expect("copy the guest image");
        let images = ImageServer::serve(&served, &place.root().join("ca.pem"));
        let ca = images.ca().display().to_string();
        place.configure(&format!("{helper_keys}\n[node.images]\nca_file = \"{ca}\"\n"));
        let operator =
            Operator::new(&bin("bcd"), &place.config(), place.root(), &image, images.url("guest.qcow2"), 120);
        let cleaner = Cleaner { instances: instances.iter().map(ToString::to_string).collect() };
        let helper = Some(daemons::helper(&place));
        let node = Some(daemons::node(&place));
        Some(Self { helper, node, images, operator, _cleaner: cleaner, place })
    }
}
