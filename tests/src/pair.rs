//! Helper, node and image server together, driven through the command line as an operator does.
//!
//! Room: `tests`.
use crate::daemons::{self, Daemon, bin};
use crate::domains::Cleaner;
use crate::guest;
use crate::images::ImageServer;
pub use crate::operator::{Operator, Wish};
use crate::place::Place;
use crate::wire::Wire;
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
        let mut pair = Self::prepare(name, instances, helper_keys)?;
        pair.start_services();
        Some(pair)
    }

    /// Everything but the daemons.
    ///
    /// # Panics
    /// When a part cannot be made.
    #[must_use]
    pub fn prepare(name: &str, instances: &[&str], helper_keys: &str) -> Option<Self> {
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
        Some(Self { helper: None, node: None, images, operator, _cleaner: cleaner, place })
    }

    /// Starts helper and node each by itself, as their units do.
    ///
    /// # Panics
    /// When one does not come up.
    pub fn start_services(&mut self) {
        self.helper = Some(daemons::helper(&self.place));
        self.node = Some(daemons::node(&self.place));
    }

    /// Starts the node alone, as root, which starts its helper.
    ///
    /// # Panics
    /// When it does not come up.
    pub fn start_standalone(&mut self) {
        self.node = Some(daemons::standalone(&self.place));
    }

    /// A greeted connection to the helper's socket, as the node's user.
    ///
    /// # Panics
    /// When it is refused.
    #[must_use]
    pub fn wire(&self) -> Wire {
        Wire::welcomed(&self.place)
    }
}
