//! A domain's XML, rendered by root from a record and the configuration. Nothing of it comes from a request as text.
//!
//! Room: `policy`. The guest's uid is a static DAC label, and each source says `relabel='no'`: libvirt then changes no
//! file's owner, and the node lets that uid at each by an ACL entry. A source without a label of its own would
//! be given to the guest's uid, so every source states one. Formats and the end of the backing chain are stated too:
//! libvirt never probes a guest's bytes.
use crate::name::{DataPath, DomainName, TapName};
use crate::record::Record;
use bcd_protocol::reply::DomainXml;
use quick_xml::Writer;
use quick_xml::events::BytesText;
use std::io;
use std::path::Path;

/// The namespace of our metadata.
pub const METADATA_NAMESPACE: &str = "https://better-compute.dev/libvirt/1";

/// What a domain's XML depends on.
#[derive(Debug, Clone, Copy)]
pub struct Parts<'a> {
    /// Where the instance's files lie.
    pub data_dir: &'a Path,
    /// Software emulation instead of KVM.
    pub software: bool,
    /// The domain.
    pub record: &'a Record,
}

type Xml = Writer<Vec<u8>>;

/// Renders a domain. `None` when it is larger than [`bcd_protocol::limits::XML_BYTES`].
#[must_use]
pub fn render(parts: &Parts<'_>) -> Option<DomainXml> {
    let mut xml = Writer::new_with_indent(Vec::new(), b' ', 2);
    domain(&mut xml, parts).ok()?;
    let text = String::from_utf8(xml.into_inner()).ok()?;
    DomainXml::try_from(text).ok()
}

fn domain(xml: &mut Xml, parts: &Parts<'_>) -> io::Result<()> {
    let Parts { software, record, .. } = *parts;
    let definition = &record.definition;
    xml.create_element("domain").with_attribute(("type", if software { "qemu" } else { "kvm" })).write_inner_content(
        |xml| {
            text(xml, "name", &[], DomainName::of(&record.instance).as_str())?;
            text(xml, "uuid", &[], &record.uuid.to_string())?;
            metadata(xml, record)?;
            text(xml, "memory", &[("unit", "KiB")], &definition.memory.kib().to_string())?;
            text(xml, "vcpu", &[("placement", "static")], &definition.vcpus.to_string())?;
            xml.create_element("os").write_inner_content(|xml| {
                text(xml, "type", &[("arch", "x86_64"), ("machine", "q35")], "hvm")?;
                empty(xml, "boot", &[("dev", "hd")])
            })?;
            xml.create_element("features").write_inner_content(|xml| {
                empty(xml, "acpi", &[])?;
                empty(xml, "apic", &[])
            })?;
            cpu(xml, software)?;
            xml.create_element("clock").with_attribute(("offset", "utc")).write_inner_content(|xml| {
                empty(xml, "timer", &[("name", "rtc"), ("tickpolicy", "catchup")])?;
                empty(xml, "timer", &[("name", "pit"), ("tickpolicy", "delay")])?;
                empty(xml, "timer", &[("name", "hpet"), ("present", "no")])
            })?;
            text(xml, "on_poweroff", &[], "destroy")?;
            text(xml, "on_reboot", &[], "restart")?;
            text(xml, "on_crash", &[], "destroy")?;
            xml.create_element("devices").write_inner_content(|xml| devices(xml, parts))?;
            xml.create_element("seclabel")
                .with_attributes([("type", "static"), ("model", "dac"), ("relabel", "yes")])
                .write_inner_content(|xml| text(xml, "label", &[], &format!("+{}:kvm", record.uid)))?;
            Ok(())
        },
    )?;
    Ok(())
}

fn metadata(xml: &mut Xml, record: &Record) -> io::Result<()> {
    let definition = &record.definition;
    xml.create_element("metadata").write_inner_content(|xml| {
        xml.create_element("bc:instance").with_attribute(("xmlns:bc", METADATA_NAMESPACE)).write_inner_content(
            |xml| {
                text(xml, "bc:id", &[], record.instance.as_str())?;
                text(xml, "bc:allocation", &[], definition.allocation.as_str())?;
                let sha256 = definition.image.sha256.to_string();
                empty(xml, "bc:image", &[("sha256", &sha256), ("format", definition.image.format.as_str())])?;
                for nic in definition.nics.iter() {
                    let mac = nic.mac.to_string();
                    if nic.addresses.is_empty() {
                        empty(xml, "bc:nic", &[("mac", &mac)])?;
                        continue;
                    }
                    xml.create_element("bc:nic").with_attribute(("mac", mac.as_str())).write_inner_content(|xml| {
                        nic.addresses.iter().try_for_each(|address| text(xml, "bc:address", &[], &address.to_string()))
                    })?;
                }
                Ok(())
            },
        )?;
        Ok(())
    })?;
    Ok(())
}

/// On KVM the host's CPU as it is; under emulation everything QEMU can emulate.
fn cpu(xml: &mut Xml, software: bool) -> io::Result<()> {
    if software {
        empty(xml, "cpu", &[("mode", "maximum"), ("check", "none")])
    } else {
        empty(xml, "cpu", &[("mode", "host-passthrough"), ("check", "none"), ("migratable", "off")])
    }
}

fn devices(xml: &mut Xml, parts: &Parts<'_>) -> io::Result<()> {
    let Parts { data_dir, record, .. } = *parts;
    let image = &record.definition.image;
    let disk = path(data_dir, &DataPath::disk(&record.instance))?;
    let seed = path(data_dir, &DataPath::seed(&record.instance))?;
    let base = path(data_dir, &DataPath::image(image))?;
    xml.create_element("disk").with_attributes([("type", "file"), ("device", "disk")]).write_inner_content(|xml| {
        empty(xml, "driver", &[("name", "qemu"), ("type", "qcow2"), ("discard", "unmap")])?;
        source(xml, &disk)?;
        xml.create_element("backingStore").with_attribute(("type", "file")).write_inner_content(|xml| {
            empty(xml, "format", &[("type", image.format.as_str())])?;
            source(xml, &base)?;
            empty(xml, "backingStore", &[])
        })?;
        empty(xml, "target", &[("dev", ROOT_DISK), ("bus", "virtio")])
    })?;
    xml.create_element("disk").with_attributes([("type", "file"), ("device", "cdrom")]).write_inner_content(|xml| {
        empty(xml, "driver", &[("name", "qemu"), ("type", "raw")])?;
        source(xml, &seed)?;
        empty(xml, "backingStore", &[])?;
        // On virtio-scsi: the kernels of Debian's cloud images have no AHCI driver, so they never see a SATA cdrom.
        empty(xml, "target", &[("dev", "sda"), ("bus", "scsi")])?;
        empty(xml, "readonly", &[])
    })?;
    empty(xml, "controller", &[("type", "scsi"), ("index", "0"), ("model", "virtio-scsi")])?;
    empty(xml, "controller", &[("type", "usb"), ("model", "none")])?;
    for (index, nic) in record.definition.nics.iter().enumerate() {
        xml.create_element("interface").with_attribute(("type", "bridge")).write_inner_content(|xml| {
            empty(xml, "mac", &[("address", &nic.mac.to_string())])?;
            empty(xml, "source", &[("bridge", nic.bridge.as_str())])?;
            empty(xml, "target", &[("dev", TapName::of(&record.instance, index).as_str())])?;
            empty(xml, "model", &[("type", "virtio")])
        })?;
    }
    xml.create_element("serial")
        .with_attribute(("type", "pty"))
        .write_inner_content(|xml| empty(xml, "target", &[("port", "0")]))?;
    xml.create_element("console")
        .with_attribute(("type", "pty"))
        .write_inner_content(|xml| empty(xml, "target", &[("type", "serial"), ("port", "0")]))?;
    xml.create_element("video").write_inner_content(|xml| empty(xml, "model", &[("type", "none")]))?;
    empty(xml, "memballoon", &[("model", "none")])?;
    // A guest kernel that panics says so, and `on_crash` then applies.
    empty(xml, "panic", &[("model", "isa")])?;
    xml.create_element("rng")
        .with_attribute(("model", "virtio"))
        .write_inner_content(|xml| empty(xml, "backend", &[("model", "builtin")]))?;
    Ok(())
}

/// The root disk's target: what `libvirt.blockresize` resizes.
pub const ROOT_DISK: &str = "vda";

fn source(xml: &mut Xml, file: &str) -> io::Result<()> {
    xml.create_element("source")
        .with_attribute(("file", file))
        .write_inner_content(|xml| empty(xml, "seclabel", &[("model", "dac"), ("relabel", "no")]))?;
    Ok(())
}

fn path(data_dir: &Path, file: &DataPath) -> io::Result<String> {
    file.beneath(data_dir).into_os_string().into_string().map_err(|_| io::Error::from(io::ErrorKind::InvalidData))
}

fn text(xml: &mut Xml, element: &str, attributes: &[(&str, &str)], content: &str) -> io::Result<()> {
    xml.create_element(element)
        .with_attributes(attributes.iter().copied())
        .write_text_content(BytesText::new(content))?;
    Ok(())
}

fn empty(xml: &mut Xml, element: &str, attributes: &[(&str, &str)]) -> io::Result<()> {
    xml.create_element(element).with_attributes(attributes.iter().copied()).write_empty()?;
    Ok(())
}
