//! Reads what the list of foreign domains shows out of a domain's XML.
//!
//! Room: `node`. The XML is libvirt's own rendering, but a foreign domain's author chose much of it: what is not as
//! expected is left out, lists are bounded, and nothing here decides anything.
use crate::runtime::Details;
use roxmltree::{Document, Node};

/// Most entries kept of each list: a foreign domain must not swell the status.
const MOST: usize = 64;
/// bcd's namespace in a domain's metadata.
const NAMESPACE: &str = "https://better-compute.dev/libvirt/1";

/// Reads a domain's XML; what cannot be read is empty.
pub(super) fn read(text: &str) -> Details {
    let Ok(document) = Document::parse(text) else {
        return Details::default();
    };
    let domain = document.root_element();
    let devices = child(domain, "devices");
    let each = |name: &'static str| {
        devices.into_iter().flat_map(move |d| d.children().filter(move |n| n.has_tag_name(name))).take(MOST)
    };
    Details {
        vcpus: child(domain, "vcpu").and_then(|n| n.text()).and_then(|t| t.trim().parse().ok()),
        memory_bytes: child(domain, "memory").and_then(memory),
        macs: each("interface")
            .filter_map(|nic| child(nic, "mac")?.attribute("address").map(str::to_lowercase))
            .collect(),
        disks: each("disk").filter_map(|disk| source(child(disk, "source")?)).collect(),
        pci: each("hostdev").filter_map(|device| pci(child(child(device, "source")?, "address")?)).collect(),
        allocation: domain
            .descendants()
            .find(|n| n.has_tag_name((NAMESPACE, "allocation")))
            .and_then(|n| n.text())
            .map(|t| t.trim().chars().take(MOST).collect()),
    }
}

fn child<'a, 'input>(node: Node<'a, 'input>, name: &str) -> Option<Node<'a, 'input>> {
    node.children().find(|n| n.has_tag_name(name))
}

/// libvirt writes memory in KiB, but says so in an attribute.
fn memory(node: Node<'_, '_>) -> Option<u64> {
    let unit = match node.attribute("unit").unwrap_or("KiB") {
        "b" | "bytes" => 1,
        "KiB" | "k" => 1 << 10,
        "MiB" | "M" => 1 << 20,
        "GiB" | "G" => 1 << 30,
        _ => return None,
    };
    node.text()?.trim().parse::<u64>().ok()?.checked_mul(unit)
}

fn source(node: Node<'_, '_>) -> Option<String> {
    ["file", "dev", "volume", "name", "dir"].into_iter().find_map(|key| node.attribute(key)).map(str::to_owned)
}

fn pci(address: Node<'_, '_>) -> Option<String> {
    let number = |key: &str| {
        let text = address.attribute(key)?;
        u32::from_str_radix(text.strip_prefix("0x").unwrap_or(text), 16).ok()
    };
    Some(format!("{:04x}:{:02x}:{:02x}.{:x}", number("domain")?, number("bus")?, number("slot")?, number("function")?))
}

#[cfg(test)]
mod tests {
    use super::*;

    const XML: &str = "<domain type='kvm'><name>other</name><metadata>\
        <b:instance xmlns:b='https://better-compute.dev/libvirt/1'><b:allocation>alloc-7</b:allocation></b:instance>\
        </metadata><memory unit='KiB'>1048576</memory><currentMemory unit='KiB'>4</currentMemory><vcpu>3</vcpu>\
        <devices><disk type='file'><source file='/a.img'/></disk><disk type='file' device='cdrom'/>\
        <disk type='block'><source dev='/dev/x'/></disk>\
        <interface type='bridge'><mac address='52:54:00:AA:bb:01'/></interface><interface type='user'/>\
        <hostdev type='pci'><source><address domain='0x0000' bus='0x0a' slot='0x00' function='0x1'/></source>\
        <address type='pci' domain='0x0000' bus='0x05' slot='0x00' function='0x0'/></hostdev></devices></domain>";

    #[test]
    fn details_are_read_from_their_own_elements() {
        assert_eq!(
            read(XML),
            Details {
                vcpus: Some(3),
                memory_bytes: Some(1 << 30),
                macs: vec!["52:54:00:aa:bb:01".to_owned()],
                disks: vec!["/a.img".to_owned(), "/dev/x".to_owned()],
                pci: vec!["0000:0a:00.1".to_owned()],
                allocation: Some("alloc-7".to_owned()),
            }
        );
    }

    #[test]
    fn metadata_of_another_namespace_is_not_ours() {
        assert_eq!(read(&XML.replace("dev/libvirt/1", "dev/libvirt/2")).allocation, None);
    }

    #[test]
    fn text_that_is_no_xml_is_empty_details() {
        assert_eq!(read("<domain><devices>"), Details::default());
    }

    #[test]
    fn long_lists_are_cut() {
        let nics = "<interface><mac address='52:54:00:00:00:01'/></interface>".repeat(1000);
        assert_eq!(read(&format!("<domain><devices>{nics}</devices></domain>")).macs.len(), MOST);
    }
}
