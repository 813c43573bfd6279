//! What judges have in common: the checks of a definition and of the files it needs.
//!
//! Room: `policy`. A definition is checked when it arrives and again before it starts, against the configuration of that
//! moment.
use crate::decide::fact_missing;
use crate::denial::{Denial, Rule};
use crate::facts::{FileFact, FileRole};
use crate::judge::Case;
use crate::name::TapStem;
use crate::phase::Phase;
use bcd_protocol::definition::Definition;
use bcd_protocol::size::DiskBytes;
use std::collections::HashSet;

#[cfg(test)]
mod tests;

impl Case<'_> {
    /// Everything a definition must keep to, whether it is new, changed, or about to start.
    pub(crate) fn judge_definition(&self, definition: &Definition) -> Result<(), Denial> {
        let config = &self.setting.config.helper;
        if self.record.is_none() {
            let most = usize::try_from(config.max_instances).unwrap_or(usize::MAX);
            if self.setting.records.len() >= most {
                return Err(Denial::new(
                    Rule::MaxInstances,
                    format!(
                        "there are {most} instances, the most that helper.max_instances allows: remove one or raise it"
                    ),
                ));
            }
            if let Some(other) = self.setting.records.tap_holder(TapStem::of(self.instance)) {
                return Err(Denial::new(
                    Rule::TapTaken,
                    format!(
                        "the taps of instance {} would be called like those of {other}: use another id",
                        self.instance
                    ),
                ));
            }
        }
        let (vcpus, most) = (definition.vcpus.get(), config.max_vcpus);
        if vcpus > most {
            return Err(Denial::new(Rule::MaxVcpus, format!("vcpus is {vcpus}: helper.max_vcpus allows {most}")));
        }
        let (memory, most) = (definition.memory, config.max_memory_bytes);
        if memory > most {
            return Err(Denial::new(
                Rule::MaxMemory,
                format!("memory_bytes is {memory}: helper.max_memory_bytes allows {most}"),
            ));
        }
        self.judge_disk(definition.disk)?;
        self.judge_nics(definition)?;
        self.judge_change(definition)
    }

    pub(crate) fn judge_disk(&self, disk: DiskBytes) -> Result<(), Denial> {
        let most = self.setting.config.helper.max_disk_bytes;
        if disk > most {
            return Err(Denial::new(
                Rule::MaxDisk,
                format!("disk_bytes is {disk}: helper.max_disk_bytes allows {most}"),
            ));
        }
        match self.record.map(|record| record.definition.disk) {
            Some(now) if disk < now => Err(Denial::new(
                Rule::DiskShrinks,
                format!("disk_bytes is {disk} and the disk has {now}: a disk only grows"),
            )),
            Some(_) | None => Ok(()),
        }
    }

    fn judge_nics(&self, definition: &Definition) -> Result<(), Denial> {
        let mut seen = HashSet::new();
        for (index, nic) in definition.nics.iter().enumerate() {
            if !self.setting.config.helper.instance_bridges.contains(&nic.bridge) {
                return Err(Denial::new(
                    Rule::BridgeNotListed,
                    format!(
                        "nics[{index}]: bridge {} is not in helper.instance_bridges: list it there or use another",
                        nic.bridge
                    ),
                ));
            }
            if !seen.insert((&nic.bridge, nic.mac)) {
                return Err(Denial::new(
                    Rule::MacTwice,
                    format!(
                        "nics[{index}]: mac {} is there twice on bridge {}: give each its own",
                        nic.mac, nic.bridge
                    ),
                ));
            }
            let holder = self.setting.records.mac_holder(&nic.bridge, nic.mac);
            if let Some(other) = holder.filter(|other| *other != self.instance) {
                return Err(Denial::new(
                    Rule::MacTaken,
                    format!(
                        "nics[{index}]: mac {} on bridge {} is instance {other}'s: use another",
                        nic.mac, nic.bridge
                    ),
                ));
            }
        }
        Ok(())
    }

    /// What may not change on an existing domain.
    fn judge_change(&self, definition: &Definition) -> Result<(), Denial> {
        let Some(record) = self.record else { return Ok(()) };
        let now = &record.definition;
        if definition.image != now.image {
            return Err(Denial::new(
                Rule::ImageFixed,
                format!(
                    "image is {} and the disk lies on {}: create another instance for another image",
                    definition.image.sha256, now.image.sha256
                ),
            ));
        }
        let in_memory = matches!(self.phase, Phase::Running | Phase::Paused);
        if in_memory && definition.nics != now.nics {
            return Err(Denial::new(
                Rule::NicsFixed,
                format!("nics of instance {} cannot change while it is {}: stop it first", self.instance, self.phase),
            ));
        }
        if in_memory && definition.disk != now.disk {
            return Err(Denial::new(
                Rule::DiskInUse,
                format!("the disk of instance {} is in use: grow it with libvirt.blockresize", self.instance),
            ));
        }
        Ok(())
    }

    pub(crate) fn judge_files(&self) -> Result<(), Denial> {
        for role in [FileRole::Disk, FileRole::Seed, FileRole::Base] {
            let what = role.as_str();
            let of = self.instance;
            let fact = self.facts.files.iter().find(|(found, _)| *found == role).map(|(_, fact)| *fact);
            match fact {
                None => return Err(fact_missing(what)),
                Some(FileFact::Missing) => {
                    return Err(Denial::new(Rule::FileMissing, format!("the {what} of instance {of} is not there")));
                }
                Some(FileFact::Other) => {
                    return Err(Denial::new(
                        Rule::FileKind,
                        format!("the {what} of instance {of} is no regular file, or a link leads to it: remove it"),
                    ));
                }
                Some(FileFact::Unreadable) => {
                    return Err(Denial::new(
                        Rule::FileUnreadable,
                        format!("the {what} of instance {of} could not be looked at: ask again"),
                    ));
                }
                Some(FileFact::Regular { uid, links, bytes: _ }) => {
                    if uid != self.setting.node_uid {
                        return Err(Denial::new(
                            Rule::FileOwner,
                            format!(
                                "the {what} of instance {of} belongs to uid {uid} and not to the node's user: chown it"
                            ),
                        ));
                    }
                    if links != 1 {
                        return Err(Denial::new(
                            Rule::FileLinks,
                            format!("the {what} of instance {of} has {links} names: remove the others"),
                        ));
                    }
                }
            }
        }
        Ok(())
    }
}
